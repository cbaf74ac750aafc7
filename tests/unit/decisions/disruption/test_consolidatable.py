"""NodeClaims show `Consolidatable` once they have had no pod events for the NodePool's consolidateAfter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.nodeclaims.objects import (
    MOST_A_MINUTE,
    SOONEST,
    TICK,
    Pace,
    show_consolidatable,
)
from nodesmith.decisions.disruption.candidates import MOST_AT_ONCE, Consolidatable, consolidatable
from nodesmith.errors import Failures, Transient
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.snapshot import Snapshot
from tests.builders import NOW, claim, node, nodepool_manifest, snapshot
from tests.fakes.cloud import Call
from tests.fakes.cluster import FakeCluster

READY = NOW - timedelta(minutes=10)


def pools(after: str = "30s") -> Mapping[str, NodePool]:
    manifest = nodepool_manifest()
    manifest["spec"]["disruption"] = {"consolidateAfter": after}
    return parsed_nodepools((manifest,))


def ready(name: str = "default-x1", **fields: Any) -> NodeClaim:
    ours = claim(name, phase=fields.pop("phase", Phase.INITIALIZED), **fields)
    return replace(ours, initialized_at=READY)


def shown(name: str, status: str = "") -> dict[str, Any]:
    conditions = [{"type": "Consolidatable", "status": status}] if status else []
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


def seen(*claims: NodeClaim, pod_event: datetime | None = None, status: str = "") -> Snapshot:
    nodes = tuple(node(c.name, provider_id=c.provider_id, last_pod_event_at=pod_event) for c in claims)
    return snapshot(nodes=nodes, nodeclaims=tuple(shown(c.name, status) for c in claims))


def found(
    pod_event: datetime | None = None, *, status: str = "", after: str = "30s", **fields: Any
) -> Consolidatable:
    ours = ready(**fields)
    return consolidatable([ours], seen(ours, pod_event=pod_event, status=status), pools(after), NOW)


def test_a_node_without_pod_events_is_consolidatable_from_its_initialization() -> None:
    (condition,) = found().due.values()
    assert (condition.type, condition.status) == ("Consolidatable", "True")
    assert condition.since == READY + timedelta(seconds=30)


def test_a_node_is_consolidatable_to_the_second_after_its_last_pod_event() -> None:
    early, in_time = NOW - timedelta(seconds=29), NOW - timedelta(seconds=30)
    assert found(early) == Consolidatable({}, early + timedelta(seconds=30))
    assert [condition.status for condition in found(in_time).due.values()] == ["True"]


def test_a_condition_that_is_shown_already_is_not_written_again() -> None:
    assert found(status="True").due == {}
    assert found(NOW).due == {}


def test_a_pod_event_removes_the_condition() -> None:
    (condition,) = found(NOW, status="True").due.values()
    assert (condition.status, condition.since) == ("False", NOW)


def test_a_condition_that_no_longer_holds_is_removed_from_the_object() -> None:
    for status in ("True", "False", "Unknown"):
        ours = ready()
        cluster = FakeCluster(nodeclaims={ours.name: shown(ours.name, status)})
        written(cluster, [ours], seen(ours, pod_event=NOW, status=status))
        assert cluster.nodeclaims[ours.name]["status"]["conditions"] == []


def test_a_node_is_never_consolidatable_with_consolidate_after_never() -> None:
    assert found(after="Never") == Consolidatable({}, None)
    (condition,) = found(after="Never", status="True").due.values()
    assert condition.status == "False"


def test_nodes_of_a_static_nodepool_are_never_consolidatable() -> None:
    ours, static = ready(), nodepool_manifest()
    static["spec"] |= {"replicas": 1}
    assert consolidatable([ours], seen(ours), parsed_nodepools((static,)), NOW) == Consolidatable({}, None)


@pytest.mark.parametrize("phase", [Phase.LAUNCHED, Phase.REGISTERED, Phase.TERMINATING])
def test_only_initialized_nodes_that_stay_are_evaluated(phase: Phase) -> None:
    assert found(phase=phase) == Consolidatable({}, None)


def test_without_a_valid_nodepool_everything_stays_as_it_is() -> None:
    ours = ready()
    assert consolidatable([ours], seen(ours, status="True"), {}, NOW) == Consolidatable({}, None)


@pytest.mark.parametrize("conditions", ["nonsense", [7], None])
def test_an_invalid_status_counts_as_no_condition(conditions: object) -> None:
    ours = ready()
    odd = {"metadata": {"name": ours.name}, "status": {"conditions": conditions}}
    one = snapshot(nodes=(node(provider_id=ours.provider_id),), nodeclaims=(odd,))
    assert list(consolidatable([ours], one, pools(), NOW).due) == [ours.name]


def test_a_run_writes_a_limited_number_and_the_oldest_changes_first() -> None:
    claims = [
        replace(ready(f"c{number:03d}"), initialized_at=READY - timedelta(seconds=number))
        for number in range(MOST_AT_ONCE + 20)
    ]
    due = list(consolidatable(claims, seen(*claims), pools(), NOW).due)
    assert due == [c.name for c in reversed(claims)][:MOST_AT_ONCE]


def written(
    cluster: FakeCluster,
    claims: list[NodeClaim],
    one: Snapshot,
    after: str = "30s",
    *,
    now: datetime = NOW,
    pace: Pace | None = None,
    done: Counter[str] | None = None,
) -> timedelta | None:
    counts: Counter[str] = Counter() if done is None else done
    with Failures() as failures:
        return show_consolidatable(claims, one, pools(after), cluster, now, pace or Pace(), counts, failures)


def test_the_writes_in_a_minute_are_limited_however_often_lifecycle_looks() -> None:
    claims = [ready(f"c{number:03d}") for number in range(MOST_A_MINUTE + 7)]
    cluster = FakeCluster(nodeclaims={c.name: shown(c.name) for c in claims})
    pace, waits = Pace(), []

    def still_shown() -> int:
        return sum(not each["status"]["conditions"] for each in cluster.nodeclaims.values())

    for second in (0, 15, 30, 45):
        left = snapshot(nodes=seen(*claims).nodes, nodeclaims=tuple(map(dict, cluster.nodeclaims.values())))
        waits.append(written(cluster, claims, left, now=NOW + timedelta(seconds=second), pace=pace))
    assert still_shown() == 7
    assert waits == [SOONEST, None, None, None]

    left = snapshot(nodes=seen(*claims).nodes, nodeclaims=tuple(map(dict, cluster.nodeclaims.values())))
    written(cluster, claims, left, now=NOW + TICK, pace=pace)
    assert still_shown() == 0


def test_the_object_shows_the_condition() -> None:
    ours = ready()
    cluster = FakeCluster(nodeclaims={ours.name: shown(ours.name)})
    done: Counter[str] = Counter()
    assert written(cluster, [ours], seen(ours), done=done) is None
    assert done == {"Consolidatable": 1}
    (condition,) = cluster.nodeclaims[ours.name]["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Consolidatable", "True")


@pytest.mark.parametrize(("quiet", "wait"), [(29, SOONEST), (10, timedelta(seconds=20))])
def test_the_next_run_is_when_the_next_condition_is_due(quiet: int, wait: timedelta) -> None:
    ours = ready()
    event = NOW - timedelta(seconds=quiet)
    assert written(FakeCluster(), [ours], seen(ours, pod_event=event)) == wait


def test_a_change_that_the_next_tick_finds_needs_no_extra_look() -> None:
    ours = ready()
    assert written(FakeCluster(), [ours], seen(ours, pod_event=NOW), after="1m") is None


def test_a_claim_that_cannot_be_written_does_not_delay_others() -> None:
    claims = [ready("a"), ready("b")]
    cluster = FakeCluster(nodeclaims={c.name: shown(c.name) for c in claims})

    def refuse(call: Call) -> None:
        if "a" in call.about:
            raise Transient("the API server is away")

    cluster.raise_before = refuse
    with pytest.raises(Transient, match="NodeClaim a"):
        written(cluster, claims, seen(*claims))
    assert cluster.nodeclaims["b"]["status"]["conditions"]
