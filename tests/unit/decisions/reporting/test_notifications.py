"""Notifications: what the state calls for, what is sent of it and how often, and the events that result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nodesmith.adapters.aws.messaging import MOST_BYTES, MOST_ENTRIES, EventBridge, batches
from nodesmith.controllers.notifying import (
    MOST_A_RUN,
    MOST_AN_HOUR,
    MOST_OF_A_KIND,
    Notifier,
)
from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.reporting.notifications import (
    DETAILS,
    LATELY,
    LONGEST_NAME,
    MOST_NAMES,
    BudgetBlocked,
    InterruptionServed,
    NodeLaunched,
    Notification,
    PodUnplaced,
    SpendingAbove,
    Unplaced,
    of_budgets,
    of_claims,
    of_spending,
    of_unplaced,
    schema,
)
from nodesmith.decisions.scheduling.offerings.quotas import usages
from nodesmith.errors import Rejected, Transient
from nodesmith.keys import notified_key, unplaced_key
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import PodTemplate, planned_pods
from nodesmith.model.ledger.ledger import Ledger, Pause
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot
from nodesmith.registration import Registration, read_registration, settings_of
from nodesmith.settings import HEALTH_SOURCE, NOTIFICATIONS, Settings
from tests import builders
from tests.builders import CLUSTER, NOW
from tests.fakes.blobs import FakeBlobs
from tests.fakes.bus import FakeBus
from tests.objects.quotas import dollar_pool

HOUR = timedelta(hours=1)


def bought(name: str = "a", *, ago: timedelta = timedelta(), **fields: Any) -> NodeClaim:
    return builders.claim(name, instance_id=f"i-{name}", launched_at=NOW - ago, **fields)


def taken(claim: NodeClaim, cause: str = InterruptionCause.SPOT) -> NodeClaim:
    running = replace(claim, phase=Phase.INITIALIZED, node_name=f"node-{claim.name}")
    return running.terminating(cause, "", NOW, NOW + timedelta(minutes=2))


def kinds(found: Any) -> list[str]:
    return [each.kind for each in found]


def test_a_launch_is_notified_with_what_was_bought_and_for_whom() -> None:
    claim = bought(instance_type="m5.large", zone="us-east-1a", capacity_type="spot", price_hourly_usd=0.03)
    (found,) = of_claims([replace(claim, nominated=("default/web-1",))], CLUSTER, NOW)
    assert isinstance(found.detail, NodeLaunched)
    assert found.document("us-east-1") == {
        "format": "1",
        "id": found.id,
        "region": "us-east-1",
        "cluster": CLUSTER,
        "nodeClaim": "a",
        "nodePool": "default",
        "instanceId": "i-a",
        "instanceType": "m5.large",
        "zone": "us-east-1a",
        "capacityType": "spot",
        "priceHourlyUsd": 0.03,
        "podCount": 1,
        "pods": ["default/web-1"],
        "decision": "",
    }


def test_planned_pods_of_a_launch_are_counted_and_not_named() -> None:
    planned = planned_pods(
        PodTemplate("PodTemplate", "spare", builders.shape()), "CapacityBuffer/spare", 2, NOW, 0
    )
    claim = replace(bought(), nominated=(*(pod.key for pod in planned), "default/web-1"))
    (found,) = of_claims([claim], CLUSTER, NOW)
    document = found.document("us-east-1")
    assert (document["podCount"], document["pods"]) == (3, ["default/web-1"])


def test_a_pending_purchase_and_one_that_was_given_up_or_is_old_are_no_launch() -> None:
    pending = builders.claim("p", phase=Phase.PENDING)
    given_up = bought("g").given_up("NoCapacity", "", NOW)
    assert (
        kinds(of_claims([pending, given_up, bought(ago=LATELY + timedelta(seconds=1))], CLUSTER, NOW)) == []
    )
    assert kinds(of_claims([bought(ago=LATELY)], CLUSTER, NOW)) == ["NodeLaunched"]


@pytest.mark.parametrize("cause", InterruptionCause)
def test_an_interruption_comes_before_launches_and_names_its_deadline(cause: InterruptionCause) -> None:
    claims = [bought("new"), taken(bought("old", ago=HOUR * 3), cause)]
    first, second = of_claims(claims, CLUSTER, NOW)
    assert isinstance(first.detail, InterruptionServed)
    assert (first.detail.cause, first.detail.node) == (cause, "node-old")
    assert first.document("r")["deadline"] == "2026-11-21T12:02:00Z"
    assert second.kind == "NodeLaunched"


def test_an_end_that_nodesmith_decided_on_is_no_interruption() -> None:
    assert kinds(of_claims([taken(bought(ago=HOUR * 3), "Drifted")], CLUSTER, NOW)) == []


def waiting(ago: timedelta, *, node: str = "") -> Snapshot:
    (pod,) = builders.pods(builders.shape(), node=node)
    return builders.snapshot(pods=[replace(pod, created_at=NOW - ago)])


def test_a_pod_without_a_place_is_notified_once_it_has_waited_for_five_minutes() -> None:
    for ago, node, expected in (
        (timedelta(minutes=5), "", ["PodUnplaced"]),
        (timedelta(minutes=4, seconds=59), "", []),
        (timedelta(minutes=6), "node-1", []),
    ):
        seen = waiting(ago, node=node)
        unplaced = [Unplaced(seen.pods[0].key, "no zone", "allow one"), Unplaced("default/gone", "x")]
        assert kinds(of_unplaced(unplaced, seen, NOW)) == expected


def test_the_example_in_the_docs_is_what_is_sent() -> None:
    text = (Path(__file__).parents[4] / "docs/notifications.md").read_text()
    example = json.loads(text.partition("```json\n")[2].partition("```")[0])
    since = datetime.fromisoformat(example["detail"]["since"])
    picky = builders.shape(namespace="shop", nodeSelector={"team": "shop"})
    pod = replace(builders.pods(picky)[0], key="shop/web-5d4c7", created_at=since)
    seen = replace(builders.snapshot(pods=[pod]), cluster="my-cluster")
    (group,) = decide(builders.inputs(snapshot=seen)).unplaced
    unplaced = [Unplaced(pod.key, group.cause.text, group.cause.fix)]
    (found,) = of_unplaced(unplaced, seen, since + timedelta(minutes=5))
    entry = {"source": HEALTH_SOURCE, "detail-type": found.kind, "time": format_time(found.at)}
    assert example == {**entry, "detail": found.document("eu-west-1")}


def test_a_later_pod_of_the_same_name_is_another_notification() -> None:
    first, second = waiting(timedelta(minutes=9)), waiting(timedelta(minutes=6))
    unplaced = [Unplaced(first.pods[0].key, "no zone")]
    ids = {each.id for seen in (first, second) for each in of_unplaced(unplaced, seen, NOW)}
    assert len(ids) == 2


def drifted(name: str, ago: timedelta) -> NodeClaim:
    claim = bought(
        name, ago=HOUR * 30, phase=Phase.INITIALIZED, node_name=f"node-{name}", initialized_at=NOW - HOUR
    )
    return replace(claim, drift="NodeClassDrift", drifted_at=NOW - ago)


def blocked(
    nodes: str, *claims: NodeClaim, others: Sequence[Mapping[str, Any]] = (), **known: Any
) -> list[Notification]:
    """Return what is notified with this budget and `others`; keywords are fields of the ledger."""
    pool = builders.nodepool_manifest()
    pool["spec"]["disruption"] = {"budgets": [*([{"nodes": nodes}] if nodes else []), *others]}
    there = [builders.node(c.node_name, provider_id=c.provider_id, labels=builders.READY) for c in claims]
    seen = builders.snapshot(nodepools=(pool,), nodes=tuple(there))
    return list(of_budgets(builders.ledger(claims=claims, **known), seen, NOW))


def window(hour: int, duration: str, **fields: Any) -> dict[str, Any]:
    """Return a budget that allows no disruption from an hour of each day on."""
    return {"nodes": "0", "schedule": f"0 {hour} * * *", "duration": duration, **fields}


@pytest.mark.parametrize(
    ("nodes", "others", "opens"),
    [
        ("0", [window(9, "8h")], None),
        ("0", [window(9, "8h", reasons=["Empty"])], None),
        ("", [window(9, "8h")], 17),
        ("", [window(9, "8h"), window(16, "3h"), window(11, "2h", reasons=["Empty"])], 19),
        ("", [window(0, "24h")], None),
    ],
    ids=["never", "for another reason", "at the end", "at the end of the last", "one follows another"],
)
def test_a_blocked_budget_says_when_time_alone_opens_it_for_drifted_nodes(
    nodes: str, others: list[dict[str, Any]], opens: int | None
) -> None:
    (found,) = blocked(nodes, drifted("a", HOUR * 2), others=others)
    expected = {} if opens is None else {"opensAt": f"2026-11-21T{opens}:00:00Z"}
    document = found.document("r")
    assert {key: document[key] for key in ("opensAt",) if key in document} == expected


def test_while_disruption_is_paused_budgets_open_when_the_pause_ends() -> None:
    for until, expected in ((None, None), (NOW + HOUR, NOW + HOUR)):
        (found,) = blocked("1", drifted("a", HOUR * 2), paused=Pause(NOW - HOUR, "", until))
        assert isinstance(found.detail, BudgetBlocked)
        assert found.detail.opens_at == expected


def test_a_budget_that_keeps_drifted_nodes_for_an_hour_is_notified_once_a_day() -> None:
    (found,) = blocked("0", drifted("b", HOUR), drifted("a", HOUR * 2))
    assert isinstance(found.detail, BudgetBlocked)
    assert (found.detail.node_claims, found.detail.node_count) == (("a", "b"), 2)
    assert found.detail.since == NOW - HOUR * 2
    assert found.key == "default 2026-11-21"


def test_a_budget_that_allows_a_node_or_blocks_shortly_or_is_in_use_is_not_notified() -> None:
    late = drifted("a", HOUR * 2)
    assert blocked("1", late) == []
    assert blocked("0", drifted("a", HOUR - timedelta(seconds=1))) == []
    assert blocked("0", late, taken(bought("other", ago=HOUR * 3))) == []


@pytest.mark.parametrize(("limit", "percent"), [("1.3", None), ("1.2", 80), ("1", 100), ("0.5", 100)])
def test_a_limit_in_dollars_is_notified_from_80_percent_on(limit: str, percent: int | None) -> None:
    claims = (bought(price_hourly_usd=1.0),)
    seen = builders.snapshot(nodepools=(dollar_pool(limit),))
    found = list(of_spending(usages(seen, builders.ledger(claims=claims), NodeSettings(), NOW), CLUSTER, NOW))
    details = [each.detail for each in found]
    expected = SpendingAbove("NodePool default", "USD an hour", percent or 0, 1.0, float(limit))
    assert details == ([expected] if percent else [])


def test_a_limit_of_0_dollars_is_notified_only_if_something_is_spent() -> None:
    seen = builders.snapshot(nodepools=(dollar_pool("0"),))
    for claims, expected in (((), []), ((bought(price_hourly_usd=1.0),), ["SpendingAbove"])):
        used = usages(seen, builders.ledger(claims=claims), NodeSettings(), NOW)
        assert kinds(of_spending(used, CLUSTER, NOW)) == expected


# which are sent


class Scene:
    """A notifier whose process can be replaced by a new one."""

    def __init__(self) -> None:
        self.bus, self.blobs = FakeBus(), FakeBlobs()
        self.restart()

    def restart(self) -> None:
        self.notifier = Notifier(self.bus, self.blobs, CLUSTER, NodeSettings())

    def notify(self, *claims: NodeClaim, now: datetime = NOW, seen: Snapshot | None = None) -> int:
        return self.notifier.notify(builders.ledger(claims=claims), seen or builders.snapshot(), now)


def test_a_notification_is_sent_once_also_by_a_new_process() -> None:
    scene = Scene()
    assert scene.notify(bought()) == 1
    assert scene.notify(bought()) == 0
    scene.restart()
    assert scene.notify(bought()) == 0
    assert scene.bus.kinds() == ["NodeLaunched"]


def test_a_cluster_without_news_causes_no_call() -> None:
    scene = Scene()
    scene.blobs.down = True
    assert scene.notify(bought(ago=HOUR * 2)) == 0
    assert scene.bus.calls == 0


def test_a_crash_after_sending_repeats_it_with_the_same_id() -> None:
    scene = Scene()
    scene.bus.dies_after = 1
    with pytest.raises(SystemExit):
        scene.notify(bought())
    scene.bus.dies_after = None
    scene.restart()
    scene.notify(bought())
    assert len(scene.bus.sent) == 2
    assert len({each.id for each in scene.bus.sent}) == 1


def test_a_bus_that_is_down_fails_no_run_and_gets_it_five_minutes_later() -> None:
    scene = Scene()
    scene.bus.down = True
    assert scene.notify(bought()) == 0
    scene.bus.down = False
    assert scene.notify(bought(), now=NOW + timedelta(minutes=4)) == 0
    assert scene.notify(bought(), now=NOW + timedelta(minutes=5)) == 1


def test_what_the_bus_refuses_is_sent_by_the_next_run() -> None:
    scene = Scene()
    first, second = of_claims([bought("a"), bought("b")], CLUSTER, NOW)
    scene.bus.refused = {first.id}
    assert scene.notify(bought("a"), bought("b")) == 1
    scene.bus.refused = ()
    assert scene.notify(bought("a"), bought("b")) == 1
    assert {each.id for each in scene.bus.sent} == {first.id, second.id}


def test_an_object_that_cannot_be_written_or_read_fails_no_run() -> None:
    scene = Scene()
    scene.blobs.objects[notified_key(CLUSTER)] = b'{"sent": 7}'
    assert scene.notify(bought("a")) == 1
    scene.blobs.down = True
    assert scene.notify(bought("a"), bought("b")) == 0
    scene.blobs.down = False
    assert scene.notify(bought("a"), bought("b"), now=NOW + timedelta(minutes=5)) == 1


def test_two_processes_keep_what_each_has_sent() -> None:
    scene, other = Scene(), Scene()
    other.bus, other.blobs = scene.bus, scene.blobs
    other.restart()
    scene.notify(bought("a"))
    other.notify(bought("a"), bought("b"))
    scene.notify(bought("a"), bought("b"), bought("c"))
    assert [each.key for each in scene.bus.sent] == ["a", "b", "c"]
    assert len(json.loads(scene.blobs.objects[notified_key(CLUSTER)])["sent"]) == 3


def test_runs_and_hours_have_a_limit_whatever_happens() -> None:
    scene = Scene()
    claims = [bought(f"c{n}") for n in range(MOST_OF_A_KIND + 100)]
    assert scene.notify(*claims) == MOST_A_RUN
    for _ in range(40):
        scene.notify(*claims)
    assert len(scene.bus.sent) == MOST_OF_A_KIND
    ends = [taken(each) for each in claims]
    for _ in range(40):
        scene.notify(*ends)
    assert scene.bus.kinds().count("InterruptionServed") == MOST_OF_A_KIND
    assert len(scene.bus.sent) == MOST_AN_HOUR


def test_pods_that_wait_are_read_from_the_last_decision() -> None:
    scene, seen = Scene(), waiting(timedelta(minutes=7))
    group = {"pods": [seen.pods[0].key], "reason": "no zone", "fix": "allow one", "event": "FailedScheduling"}
    scene.blobs.put(unplaced_key(CLUSTER), json.dumps({"at": NOW.isoformat(), "unplaced": [group]}).encode())
    assert scene.notify(seen=seen) == 1
    (sent,) = scene.bus.sent
    assert isinstance(sent.detail, PodUnplaced)
    assert (sent.detail.reason, sent.detail.remedy) == ("no zone", "allow one")


def test_pods_whose_own_annotation_delays_the_purchase_are_not_notified() -> None:
    scene, seen = Scene(), waiting(timedelta(minutes=7))
    group = {"pods": [seen.pods[0].key], "reason": "later", "fix": "", "event": "ScaleUpDelayed"}
    scene.blobs.put(unplaced_key(CLUSTER), json.dumps({"at": NOW.isoformat(), "unplaced": [group]}).encode())
    assert scene.notify(seen=seen) == 0


# events


class Events:
    """EventBridge's PutEvents. It refuses entries of these positions, counted over all calls."""

    def __init__(self, *refused: int, error: str = "") -> None:
        self.entries: list[Mapping[str, Any]] = []
        self.calls: list[int] = []
        self.refused, self.error = refused, error

    def put_events(self, **asked: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        first = len(self.entries)
        self.entries += asked["Entries"]
        self.calls.append(len(asked["Entries"]))
        bad = {at for at in self.refused if first <= at < len(self.entries)}
        reported = [{"ErrorCode": "Busy"} if at in bad else {} for at in range(first, len(self.entries))]
        return {"FailedEntryCount": len(bad), "Entries": reported}


def test_events_are_sent_ten_at_a_time_and_refused_ones_are_reported_apart() -> None:
    events = Events(3, 20)
    found = list(of_claims([bought(f"c{n}") for n in range(23)], CLUSTER, NOW))
    accepted = list(EventBridge(lambda: events, "us-east-1").put(found))
    assert events.calls == [10, 10, 3]
    assert accepted == [each.id for at, each in enumerate(found) if at not in {3, 20}]
    assert {(e["Source"], e["DetailType"], e["Time"]) for e in events.entries} == {
        ("nodesmith", "NodeLaunched", NOW)
    }


def test_a_batch_has_at_most_256_kib() -> None:
    large = [{"Source": "nodesmith", "DetailType": "x", "Detail": "é" * 50_000}] * 7
    found = list(batches(large))
    assert [len(batch) for batch in found] == [2, 2, 2, 1]
    assert all(sum(len(entry["Detail"].encode()) for entry in batch) <= MOST_BYTES for batch in found)
    assert [len(batch) for batch in batches([{**large[0], "Detail": ""}] * 11)] == [MOST_ENTRIES, 1]


HOSTILE = "<script>alert(1)</script>\u202e\ud800" + "x" * 10_000


def test_hostile_names_are_text_of_bounded_length() -> None:
    claim = replace(bought(HOSTILE), nominated=tuple(HOSTILE for _ in range(1000)))
    (found,) = of_claims([claim], CLUSTER, NOW)
    events = Events()
    assert list(EventBridge(lambda: events, "us-east-1").put([found])) == [found.id]
    detail = json.loads(events.entries[0]["Detail"])
    assert detail["podCount"] == 1000
    assert detail["pods"] == [HOSTILE[:LONGEST_NAME]] * MOST_NAMES
    assert detail["nodeClaim"].startswith("<script>alert(1)</script>")
    assert len(events.entries[0]["Detail"].encode()) < MOST_BYTES


@pytest.mark.parametrize("failure", [Transient("busy"), Rejected("events:PutEvents: AccessDenied: no")])
def test_a_call_that_fails_says_which(failure: Exception) -> None:
    class Broken(Events):
        def put_events(self, **_: Any) -> Mapping[str, Any]:
            raise failure

    found = list(of_claims([bought()], CLUSTER, NOW))
    with pytest.raises(type(failure), match=str(failure)):
        list(EventBridge(lambda: Broken(), "us-east-1").put(found))


# schemas

_TYPES: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "array": list}


def everything() -> list[Notification]:
    claims = (bought("a", price_hourly_usd=1.0), taken(bought("b", ago=HOUR * 3)))
    seen = builders.snapshot(nodepools=(dollar_pool("1"),))
    pod = waiting(timedelta(minutes=9))
    return [
        *of_claims(claims, CLUSTER, NOW),
        *of_unplaced([Unplaced(pod.pods[0].key, "no zone")], pod, NOW),
        *blocked("0", drifted("a", HOUR)),
        *of_spending(usages(seen, Ledger(claims=claims), NodeSettings(), NOW), CLUSTER, NOW),
    ]


def test_every_kind_has_a_schema_that_its_events_meet() -> None:
    found = {each.kind: each for each in everything()}
    assert sorted(found) == sorted(NOTIFICATIONS) == sorted(each.__name__ for each in DETAILS)
    for kind in DETAILS:
        reported, document = schema(kind), found[kind.__name__].document("us-east-1")
        assert set(reported["required"]) <= set(document) <= set(reported["properties"])
        for name, value in document.items():
            assert isinstance(value, _TYPES[reported["properties"][name]["type"]]), name
            assert reported["properties"][name]["description"]


def test_ids_depend_on_cluster_kind_and_key_alone() -> None:
    (found,) = of_claims([bought()], CLUSTER, NOW)
    later = replace(found, at=NOW + HOUR)
    assert later.id == found.id
    assert len({found.id, replace(found, cluster="other").id, replace(found, key="b").id}) == 3


# settings

EAST = Registration("east", "vpc-01234567", ("nodes",))
DEPLOYMENT = Settings("us-east-1")


def test_a_cluster_or_the_deployment_may_turn_notifications_off() -> None:
    off = replace(EAST, settings={"NOTIFICATIONS": "false"})
    assert settings_of(EAST, DEPLOYMENT).notifications
    assert not settings_of(off, DEPLOYMENT).notifications
    assert not settings_of(EAST, replace(DEPLOYMENT, notifications=False)).notifications


def test_a_setting_that_is_neither_true_nor_false_is_refused_with_what_would_be_right() -> None:
    text = replace(EAST, settings={"NOTIFICATIONS": "maybe"}).to_json()
    with pytest.raises(Rejected, match=r"settings\.NOTIFICATIONS: must be true or false, found 'maybe'"):
        read_registration("east", text)
