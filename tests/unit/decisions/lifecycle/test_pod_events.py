"""The time when pods last came to a node or left it is written once the node is quiet, and only if it has changed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.nodeclaims.objects import stamp
from nodesmith.decisions.disruption.candidates import MOST_STAMPS_AT_ONCE, to_stamp
from nodesmith.errors import Failures, Transient
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.snapshot import Snapshot
from tests.builders import NOW, claim, node, snapshot
from tests.fakes.cloud import Call
from tests.fakes.cluster import FakeCluster

CALM = NOW - timedelta(seconds=10)


def shown(name: str, written: object = None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"lastPodEventTime": written} if written else {}}


def due(at: datetime | None, written: object = None, **fields: Any) -> dict[str, datetime]:
    """Return what is written for a claim whose node had its last pod event `at`, and whose object shows `written`."""
    ours = claim(phase=fields.pop("phase", Phase.INITIALIZED), **fields)
    machine = node(provider_id=ours.provider_id, last_pod_event_at=at)
    return to_stamp([ours], snapshot(nodes=(machine,), nodeclaims=(shown(ours.name, written),)), NOW)


def test_an_event_is_written_when_the_node_has_been_quiet_for_ten_seconds() -> None:
    assert due(CALM) == {"default-x1": CALM}
    assert due(CALM + timedelta(seconds=1)) == {}


@pytest.mark.parametrize("written", [format_time(CALM), format_time(NOW), "2026-11-21T14:00:00+01:00"])
def test_a_time_that_is_written_already_or_later_is_kept(written: str) -> None:
    assert due(CALM, written) == {}


@pytest.mark.parametrize("written", ["yesterday", 7, format_time(CALM - timedelta(hours=1))])
def test_a_time_that_is_older_or_invalid_is_replaced(written: object) -> None:
    assert due(CALM, written) == {"default-x1": CALM}


def test_nothing_is_written_for_nodes_without_events_ending_claims_and_claims_without_a_node() -> None:
    assert due(None) == {}
    assert due(CALM, phase=Phase.TERMINATING) == {}
    assert due(CALM, phase=Phase.PENDING) == {}


def test_nothing_is_written_for_a_claim_whose_object_is_gone() -> None:
    ours = claim(phase=Phase.INITIALIZED)
    machine = node(provider_id=ours.provider_id, last_pod_event_at=CALM)
    assert to_stamp([ours], snapshot(nodes=(machine,)), NOW) == {}


def many(count: int) -> tuple[list[NodeClaim], Snapshot]:
    """Return claims of nodes that became quiet one after the other, the last of them first."""
    claims = [claim(f"c{number:03d}", phase=Phase.INITIALIZED) for number in range(count)]
    nodes = tuple(
        node(c.name, provider_id=c.provider_id, last_pod_event_at=CALM - timedelta(seconds=number))
        for number, c in enumerate(claims)
    )
    return claims, snapshot(nodes=nodes, nodeclaims=tuple(shown(c.name) for c in claims))


def test_a_run_writes_a_limited_number_and_the_longest_quiet_nodes_first() -> None:
    claims, seen = many(MOST_STAMPS_AT_ONCE + 20)
    assert list(to_stamp(claims, seen, NOW)) == [c.name for c in reversed(claims)][:MOST_STAMPS_AT_ONCE]


def test_a_claim_that_cannot_be_stamped_does_not_delay_others() -> None:
    claims, seen = many(3)
    cluster = FakeCluster(nodeclaims={c.name: shown(c.name) for c in claims})

    def refuse(call: Call) -> None:
        if "c001" in call.about:
            raise Transient("the API server is away")

    cluster.raise_before = refuse
    failures = Failures()
    assert stamp(claims, seen, cluster, NOW, failures) == 2
    assert str(failures) == "NodeClaim c001: the API server is away"
    assert cluster.nodeclaims["c000"]["status"] == {"lastPodEventTime": format_time(CALM)}
