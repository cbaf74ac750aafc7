"""A shadow lives through what happens in a cluster: its pods, its nodes and its money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.shadow.actual import boot_shown
from nodesmith.decisions.shadow.advance import KARPENTERS, OURS, has_changed, step
from nodesmith.decisions.shadow.fleet import lasting_claim, statuses
from nodesmith.decisions.shadow.karpenter import first_fit_plan
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.costs.shadow import (
    ACTUAL,
    LONGEST_FAULT,
    MOST_FAULTS,
    MOST_HOURS,
    NODESMITH,
    Assumptions,
    Shadow,
    Tally,
    read_shadow,
    shortened_faults,
    write_shadow,
)
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.nodes import Condition
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot
from tests import builders
from tests.objects.fleets import pool, worker

MINUTE = timedelta(minutes=1)
CALM = Assumptions(interruptions_a_month=0.0)
BIG = builders.shape("3", "6Gi", app="big")
SMALL = builders.shape("500m", "1Gi", app="small")


def seen(pods: Sequence[Pod], *names: str, kind: str = "m5.xlarge", **fields: Any) -> Snapshot:
    """Return a cluster with nodes of these names and a NodePool that buys on-demand capacity."""
    nodes = tuple(worker(name, kind).node for name in names)
    return builders.snapshot(**{"pods": pods, "nodes": nodes, "nodepools": (pool(),), **fields})


def stepped(before: Shadow | None, snapshot: Snapshot, now: datetime, assumed: Assumptions = CALM) -> Shadow:
    return step(before, snapshot, builders.catalog(), NodeSettings(), now, assumed=assumed)


def pending(shape: Any, name: str, at: datetime) -> Pod:
    return Pod(f"default/{name}", shape, at, unschedulable=True)


def bound(shape: Any, name: str, node: str) -> Pod:
    return Pod(f"default/{name}", shape, builders.NOW - timedelta(hours=1), node)


def fleet(shadow: Shadow, name: str = NODESMITH) -> dict[str, list[str]]:
    """Return the pods by node of a shadow."""
    found = shadow.fleets[name]
    held: dict[str, list[str]] = {claim.name: [] for claim in found.claims}
    for key, location in found.locations.items():
        held.setdefault(location.node, []).append(key.partition("/")[2])
    return held


def usd(shadow: Shadow, name: str) -> float:
    return sum(hour.tallies.get(name, Tally()).usd for hour in shadow.hours)


def test_a_shadow_begins_as_a_copy_of_the_cluster() -> None:
    shadow = stepped(None, seen([bound(BIG, "a", "one"), bound(BIG, "b", "two")], "one", "two"), builders.NOW)
    assert fleet(shadow) == fleet(shadow, "karpenter") == {"one": ["a"], "two": ["b"]}
    assert usd(shadow, NODESMITH) == 0


def test_both_sides_cost_the_same_while_nothing_can_be_saved() -> None:
    snapshot = seen([bound(BIG, "a", "one")], "one", kind="m5.xlarge", nodepools=(pool(policy="WhenEmpty"),))
    first = stepped(None, snapshot, builders.NOW)
    after = stepped(first, snapshot, builders.NOW + 10 * MINUTE)
    expected = 0.192 / 6
    assert usd(after, ACTUAL) == pytest.approx(expected)
    assert usd(after, NODESMITH) == pytest.approx(expected)
    assert after.days[-1].seconds == 600


def test_a_pod_without_room_gets_a_node_and_runs_there_once_it_has_booted() -> None:
    start = seen([bound(BIG, "a", "one")], "one", nodepools=(pool(policy="WhenEmpty"),))
    first = stepped(None, start, builders.NOW)
    came = builders.NOW + 30 * timedelta(seconds=1)
    grown = replace(start, pods=(*start.pods, pending(BIG, "b", came)))
    second = stepped(first, grown, builders.NOW + MINUTE)
    assert fleet(second)[""] == ["b"], "the node boots"
    third = stepped(second, grown, builders.NOW + 2 * MINUTE)
    held = fleet(third)
    assert "" not in held
    assert sorted(pod for pods in held.values() for pod in pods) == ["a", "b"]
    ours = third.days[-1].tallies[NODESMITH]
    assert ours.launches == 1
    waited = CALM.latency_seconds + CALM.boot_seconds
    assert ours.pending_seconds == pytest.approx(waited)


def test_a_pod_that_replaces_another_one_keeps_its_place_in_the_shadow() -> None:
    first = stepped(None, seen([bound(BIG, "a", "one")], "one"), builders.NOW)
    moved = seen([bound(BIG, "a2", "other")], "one", "other", nodepools=(pool(policy="WhenEmpty"),))
    after = stepped(first, moved, builders.NOW + MINUTE)
    assert fleet(after) == {"one": ["a2"]}
    assert after.days[-1].tallies[NODESMITH].evictions == 0


def test_evictions_of_the_clusters_own_autoscaler_are_counted_on_its_side() -> None:
    start = seen([bound(BIG, "a", "one")], "one")
    closing = replace(start, nodes=tuple(replace(n, taints=(DISRUPTED,)) for n in start.nodes))
    first = stepped(None, closing, builders.NOW)
    after = stepped(first, seen([bound(BIG, "a2", "two")], "two"), builders.NOW + MINUTE)
    assert after.days[-1].tallies[ACTUAL].evictions == 1


def test_a_shadow_consolidates_and_pays_for_the_nodes_that_pods_leave_until_they_have_left() -> None:
    pods = [bound(SMALL, "a", "one"), bound(SMALL, "b", "two"), bound(SMALL, "c", "three")]
    snapshot = seen(pods, "one", "two", "three")
    shadow = stepped(None, snapshot, builders.NOW)
    for minute in range(1, 6):
        shadow = stepped(shadow, snapshot, builders.NOW + minute * MINUTE)
    assert len(shadow.fleets[NODESMITH].claims) == 1
    day = shadow.days[-1].tallies
    assert day[NODESMITH].evictions >= 2
    assert day[NODESMITH].usd < day[ACTUAL].usd
    assert day[NODESMITH].starting_usd > 0
    assert shadow.fleets[NODESMITH].bound_hourly_usd > 0


def test_what_no_plan_could_cost_less_than_is_counted_for_the_time_since_it_is_known() -> None:
    pods = [bound(SMALL, "a", "one"), bound(SMALL, "b", "one")]
    snapshot = seen(pods, "one", nodepools=(pool(policy="WhenEmpty"),))
    first = stepped(None, snapshot, builders.NOW)
    bound_usd = first.fleets[NODESMITH].bound_hourly_usd
    assert 0 < bound_usd < 0.192
    ours = stepped(first, snapshot, builders.NOW + 10 * MINUTE).days[-1].tallies[NODESMITH]
    assert ours.bound_usd == pytest.approx(bound_usd / 6)
    assert ours.bound_seconds == 600


def test_a_nodeclass_that_karpenter_finds_faulty_is_not_bought_from() -> None:
    faulty = {"type": "SubnetsReady", "status": "False", "reason": "SubnetsNotFound", "message": "none match"}
    unready = {"type": "Ready", "status": "False"}
    found = {
        name: statuses([{**builders.nodeclass_manifest(), "status": {"conditions": shown}}], builders.ZONES)
        for name, shown in {"faulty": [faulty, unready], "unready": [unready]}.items()
    }
    assert [c.reason for c in found["faulty"]["default"].conditions] == ["SubnetsNotFound"]
    assert [c.status for c in found["unready"]["default"].conditions] == ["True"], "only what is wrong counts"


def test_reservations_are_read_from_the_nodeclass_and_have_a_free_instance_unless_it_says_how_many() -> None:
    first = {"id": "cr-1", "instanceType": "m5.large", "availabilityZone": builders.ZONES[0]}
    other = {**first, "id": "cr-2", "availableInstanceCount": 3, "interruptible": True, "state": "expiring"}
    shown = {**builders.nodeclass_manifest(), "status": {"capacityReservations": [first, other]}}

    found = statuses([shown], builders.ZONES)["default"].capacity_reservations

    assert [(each.id, each.available) for each in found] == [("cr-1", 1), ("cr-2", 3)]
    assert [(each.instance_type, each.zone) for each in found] == [("m5.large", builders.ZONES[0])] * 2
    assert [(each.interruptible, each.expiring) for each in found] == [(False, False), (True, True)]


def test_a_node_on_paper_does_not_expire() -> None:
    own = parse_nodepool(builders.nodepool_manifest()).value
    assert own is not None
    assert own.expire_after == "720h"
    found = lasting_claim(worker("one").node, own.name, {own.name: own})
    assert (found.nodepool, found.node_name, found.expire_after) == (own.name, "one", None)


def test_pods_that_no_nodepool_accepts_keep_a_copy_of_their_node() -> None:
    picky = builders.shape("3", "6Gi", app="picky", nodeSelector={"example.com/team": "a"})
    first = stepped(None, seen([bound(BIG, "a", "one")], "one"), builders.NOW)
    own = worker("special", labels={"example.com/team": "a", "karpenter.sh/nodepool": ""}).node
    snapshot = seen([bound(BIG, "a", "one"), bound(picky, "p", "special")], "one")
    snapshot = replace(snapshot, nodes=(*snapshot.nodes, own))
    after = stepped(first, snapshot, builders.NOW + MINUTE)
    assert fleet(after)["special"] == ["p"]


def test_interrupted_spot_nodes_lose_their_pods_which_wait_only_if_a_node_boots_longer_than_the_notice() -> (
    None
):
    node = worker("one", capacity_type="spot").node
    snapshot = replace(seen([bound(BIG, "a", "one")]), nodes=(node,))
    first = stepped(None, snapshot, builders.NOW)
    always = Assumptions(interruptions_a_month=1e6)
    after = stepped(first, snapshot, builders.NOW + MINUTE, always)
    day = after.days[-1].tallies[NODESMITH]
    assert (day.evictions, day.interrupted, day.launches) == (1, 1, 1)
    later = stepped(after, snapshot, builders.NOW + 2 * MINUTE)
    assert later.days[-1].tallies[NODESMITH].pending_seconds == 0


def test_boot_times_are_learned_from_the_clusters_nodes() -> None:
    node = replace(worker("one").node, created_at=builders.NOW - timedelta(minutes=10))
    ready = Condition("True", since=builders.NOW - timedelta(minutes=8))
    snapshot = replace(seen([]), nodes=(replace(node, conditions={"Ready": ready}),))
    assert stepped(None, snapshot, builders.NOW).boot_seconds == 145
    assert stepped(None, seen([], "one"), builders.NOW).boot_seconds == 0


@pytest.mark.parametrize(("seconds", "boot"), [(4, 0), (5, 5), (900, 900), (901, 0)])
def test_a_node_that_was_ready_too_soon_or_too_late_shows_no_boot_time(seconds: int, boot: int) -> None:
    id_ = "aws:///us-east-1a/i-1"
    node = replace(worker("one").node, created_at=builders.NOW, provider_id=id_)
    ready = Condition("True", since=builders.NOW + timedelta(seconds=seconds))
    bought = {
        "metadata": {"name": "one", "creationTimestamp": format_time(builders.NOW)},
        "status": {"providerID": id_},
    }
    snapshot = replace(seen([]), nodes=(replace(node, conditions={"Ready": ready}),), nodeclaims=(bought,))
    assert boot_shown(snapshot) == boot


def test_nothing_is_counted_for_the_time_in_which_nothing_was_seen() -> None:
    snapshot = seen([bound(BIG, "a", "one")], "one", nodepools=(pool(policy="WhenEmpty"),))
    first = stepped(None, snapshot, builders.NOW)
    after = stepped(first, snapshot, builders.NOW + timedelta(hours=5))
    assert after.days[-1].seconds == 900
    assert usd(after, ACTUAL) == pytest.approx(0.192 / 4)


def test_a_node_without_price_counts_for_neither_side_and_the_rest_goes_on() -> None:
    strange = replace(worker("odd").node, labels={"node.kubernetes.io/instance-type": "z9.huge"})
    pods = [bound(BIG, "a", "one"), bound(BIG, "b", "odd")]
    snapshot = seen(pods, "one", nodepools=(pool(policy="WhenEmpty"),))
    snapshot = replace(snapshot, nodes=(*snapshot.nodes, strange))
    after = stepped(stepped(None, snapshot, builders.NOW), snapshot, builders.NOW + 10 * MINUTE)
    assert fleet(after) == {"one": ["a"]}
    assert usd(after, ACTUAL) == pytest.approx(0.192 / 6)
    assert after.days[-1].unpriced_seconds == 600
    assert any(
        each.startswith("Node/odd: its instance type 'z9.huge' is not in the catalogue")
        for each in after.faults
    )


def test_two_karpenters_and_nodeclaims_without_an_instance_are_reported() -> None:
    old = worker("old", labels={"karpenter.sh/provisioner-name": "default", "karpenter.sh/nodepool": ""}).node
    old = replace(old, labels={k: v for k, v in old.labels.items() if k != "karpenter.sh/nodepool"})
    empty = {"kind": "NodeClaim", "metadata": {"name": "lost"}, "spec": {}}
    gone = {"kind": "NodeClaim", "metadata": {"name": "gone"}, "status": {"providerID": "aws:///z/i-0"}}
    snapshot = seen([], "one", nodeclaims=(empty, gone))
    snapshot = replace(snapshot, nodes=(*snapshot.nodes, old))
    faults = stepped(None, snapshot, builders.NOW).faults
    assert "NodeClaim/lost: it has no instance, so it counts for neither side" in faults
    assert "NodeClaim/gone: its instance has no Node, so it counts for neither side" in faults
    assert any(
        each.startswith("two Karpenters: 1 nodes belong to NodePools and 1 to Provisioners")
        for each in faults
    )


def test_a_cluster_without_nodepools_is_told_what_to_apply() -> None:
    (fault,) = stepped(None, seen([], "one", nodepools=()), builders.NOW).faults
    assert fault.startswith("there is no NodePool, so the shadows buy nothing")


def test_faults_are_cut_in_length_and_number_and_stay_on_one_line() -> None:
    found = shortened_faults(["a\nb" * 5000, *(str(number) for number in range(500))])
    assert len(found) == MOST_FAULTS
    assert len(found[0]) == LONGEST_FAULT
    assert "\n" not in found[0]
    assert found[-1] == "and 452 more"


def test_what_is_written_is_read_back_and_bounded() -> None:
    snapshot = seen([bound(SMALL, "a", "one"), pending(BIG, "b", builders.NOW)], "one")
    shadow = stepped(None, snapshot, builders.NOW)
    shadow = stepped(shadow, snapshot, builders.NOW + MINUTE)
    written = write_shadow(shadow)
    read = read_shadow(written, "shadow")
    assert (read.fleets, read.waiting, read.at) == (shadow.fleets, shadow.waiting, shadow.at)
    assert write_shadow(read) == written
    for hour in range(MOST_HOURS + 30):
        shadow = replace(shadow, at=builders.NOW + timedelta(hours=hour)).adding(60.0, {}, 0.0)
    assert len(shadow.hours) == MOST_HOURS


def test_a_damaged_object_is_rejected_with_its_name() -> None:
    with pytest.raises(
        Rejected, match=r"clusters/web/shadow\.json\.gz cannot be read: .*delete it to start again"
    ):
        read_shadow(b"{}", "clusters/web/shadow.json.gz")


def test_only_news_must_be_kept_at_once() -> None:
    snapshot = seen([bound(BIG, "a", "one")], "one", nodepools=(pool(policy="WhenEmpty"),))
    first = stepped(None, snapshot, builders.NOW)
    assert not has_changed(first, stepped(first, snapshot, builders.NOW + MINUTE))
    grown = replace(snapshot, pods=(*snapshot.pods, pending(BIG, "b", builders.NOW)))
    assert has_changed(first, stepped(first, grown, builders.NOW + MINUTE))


def test_first_fit_opens_the_largest_node_that_would_hold_all_pods_while_the_plan_packs_them() -> None:
    pods = [
        pending(builders.shape(f"{cpu}m", "1Gi", app=f"app-{cpu}"), f"p-{cpu}", builders.NOW)
        for cpu in (300, 700, 1500)
    ]
    inputs = builders.inputs(snapshot=builders.snapshot(pods=pods, nodepools=(pool(),)))
    theirs, ours = first_fit_plan(inputs), decide(inputs)
    assert len(theirs.nodes) == 1
    assert sorted(theirs.nodes[0].claim.nominated) == sorted(pod.key for pod in pods)
    assert ours.price_hourly_usd <= theirs.price_hourly_usd


def test_the_same_events_give_the_same_shadows() -> None:
    snapshot = seen([bound(SMALL, "a", "one"), bound(SMALL, "b", "two")], "one", "two")
    twice = []
    for _ in range(2):
        shadow = stepped(None, snapshot, builders.NOW)
        for minute in (1, 2, 3):
            shadow = stepped(shadow, snapshot, builders.NOW + minute * MINUTE)
        twice.append(write_shadow(shadow))
    assert twice[0] == twice[1]
    assert {OURS.name, KARPENTERS.name} == set(shadow.fleets)
