"""Replacing expired or unhealthy nodes: first launch the replacement, then drain the old node, then terminate it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.disruption.repair import Repair, repair_nodes
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern, Heartbeat
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.fakes.cloud import Call
from tests.samples import sampled, spread
from tests.smallworld.world import STALE_AFTER, TICK, Boundaries, World, pod_manifest


class Clinic(World):
    """A world in which Nodes have conditions set by their kubelets and agents."""

    symptoms: dict[str, dict[str, str]]

    def pass_time(self) -> None:
        super().pass_time()
        for name, condition in getattr(self, "symptoms", {}).items():
            if name in self.cluster.nodes:
                status = self.cluster.nodes[name]["status"]
                others = [c for c in status["conditions"] if c["type"] != condition["type"]]
                status["conditions"] = [*others, condition]
        self.observe()

    def care(self, minutes: int = 1) -> None:
        """Run all functions for a while, including repair."""
        for _ in range(minutes):
            self.run(Concern.REPAIR)
            self.live(TICK)


def settled(mode: str = "On", boundaries: Boundaries | None = None) -> Clinic:
    """Return a world with one node that runs two pods."""
    nodepool = builders.nodepool_manifest()
    nodepool["metadata"]["annotations"] = {"nodesmith.dev/node-repair": mode}
    pods = {name: pod_manifest(name) for name in ("web-0", "web-1")}
    world = Clinic(pods, nodepool=nodepool)
    world.settle()
    world.care()
    assert world.violations() == []
    if boundaries is not None:
        boundaries.look = world.held
        world.boundaries = boundaries
    return world


def old(world: Clinic) -> str:
    """Let the only node expire within an hour, and return its name."""
    (claim,) = world.store.claims.values()
    born = world.now - timedelta(hours=719)
    world.store.claims[claim.name] = replace(claim, created_at=born)
    return claim.node_name


def sick(world: Clinic, kind: str, status: str = "False", since: timedelta = timedelta(hours=1)) -> str:
    """Set a bad condition on the only node, and return the node's name."""
    (claim,) = world.store.claims.values()
    moment = format_time(world.now - since)
    world.symptoms = {claim.node_name: {"type": kind, "status": status, "lastTransitionTime": moment}}
    world.pass_time()
    return claim.node_name


class Watcher:
    """Records which nodes were ready at each eviction, with the time."""

    def __init__(self, world: Clinic) -> None:
        self.world = world
        self.evictions: list[tuple[datetime, list[Phase]]] = []
        world.cluster.raise_before = self.look

    def look(self, call: Call) -> None:
        if call.method == "evict":
            phases = [claim.phase for claim in self.world.store.claims.values()]
            self.evictions.append((self.world.now, phases))


@pytest.mark.parametrize("why", ["old", "StorageReady"])
def test_the_replacement_is_ready_before_the_first_eviction(why: str) -> None:
    world = settled()
    before = old(world) if why == "old" else sick(world, why)
    watcher, begun = Watcher(world), world.now
    world.care(8)
    assert world.violations() == []
    assert before not in world.cluster.nodes
    assert len(world.store.claims) == 1
    first, phases = watcher.evictions[0]
    assert sorted(phases) == [Phase.INITIALIZED, Phase.TERMINATING]
    assert timedelta(seconds=30) <= first - begun <= timedelta(minutes=3)
    assert len(world.cloud.instances) == 2


def test_an_unreachable_node_is_replaced() -> None:
    world = settled()
    before = sick(world, "Ready", "Unknown")
    world.care(8)
    assert before not in world.cluster.nodes
    assert [claim.phase for claim in world.store.claims.values()] == [Phase.INITIALIZED]
    assert world.waiting() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("why", ["old", "StorageReady"])
def test_a_crash_before_or_after_any_call_does_not_change_the_outcome(why: str) -> None:
    def story(boundaries: Boundaries) -> Clinic:
        world = settled(boundaries=boundaries)
        _ = old(world) if why == "old" else sick(world, why)
        world.care(9)
        return world

    undisturbed = Boundaries()
    assert story(undisturbed).violations() == []
    moments = undisturbed.distinct()
    broken = {}
    for moment in spread(moments, sampled(2, whole=10), why):
        world = story(Boundaries(frozenset({moment}), look=None))
        faults = world.violations()
        if faults or len(world.cloud.instances) != 2:
            broken[moment] = faults, len(world.cloud.instances)
    assert broken == {}


def test_in_report_mode_nothing_is_repaired() -> None:
    world = settled("Report")
    node = sick(world, "StorageReady")
    world.care(3)
    assert node in world.cluster.nodes
    assert [claim.phase for claim in world.store.claims.values()] == [Phase.INITIALIZED]
    (event,) = {e for e in world.cluster.events if e.reason == "NodeUnhealthy"}
    assert event.name == node
    assert event.message.startswith(
        "with nodesmith.dev/node-repair: On its NodePool would replace the node: "
        "condition StorageReady has been False since"
    )


def run_of(world: Clinic, **ports: Any) -> Repair:
    known: dict[str, Any] = {
        "store": world.store,
        "cluster": world.cluster,
        "blobs": world.blobs,
        "hints": world.hints,
    }
    seen = {"last_heartbeat": lambda: Heartbeat(world.now, builders.NOW), "stale_after": STALE_AFTER}
    return Repair(builders.CLUSTER, **(known | seen | ports), clock=world.clock)


def test_a_report_is_repeated_at_most_once_per_quarter_of_an_hour() -> None:
    world = settled("Report")
    sick(world, "StorageReady")
    run = run_of(world)
    calls: list[Call] = []
    world.cluster.raise_before = calls.append
    for _ in range(4):
        assert repair_nodes(run).counts == {"NodesUnhealthy": 1, "RepairsBlocked": 0}
    assert [call.method for call in calls] == ["publish"]
    world.now += timedelta(minutes=15)
    repair_nodes(run)
    assert len(calls) == 2


def test_a_replaced_unhealthy_node_is_counted_by_its_condition() -> None:
    world = settled()
    sick(world, "NetworkingReady")
    world.care(3)
    counted = world.metrics.take().counters["nodeclaims_unhealthy_disrupted_total"]
    ((labels, times),) = counted.items()
    about = dict(labels)
    assert (about["condition"], about["nodepool"], times) == ("networking_ready", "default", 1)
    assert about["image_id"].startswith("ami-")
    assert about["capacity_type"] in {"spot", "on-demand"}


def test_repair_counts_its_actions_and_sends_hints_to_the_next_concerns() -> None:
    world = settled()
    sick(world, "Ready", "Unknown", since=timedelta(minutes=29))
    assert repair_nodes(run_of(world)).counts == {"NodesUnhealthy": 0}
    world.now += timedelta(minutes=1)
    world.hints.waiting.clear()
    assert repair_nodes(run_of(world)).counts == {
        "NodesUnhealthy": 1,
        "NodesRepaired": 1,
        "RepairsBlocked": 0,
    }
    assert [message.concern for message in world.hints.waiting] == [Concern.TERMINATION, Concern.PROVISIONING]
    (event,) = (e for e in world.cluster.events if e.reason == "NodeRepair")
    (claim,) = world.store.claims.values()
    assert (event.kind, event.name, event.warning) == ("Node", claim.node_name, True)
    assert repair_nodes(run_of(world)).counts == {"NodesUnhealthy": 0}, "its termination has started"


def test_a_claim_that_another_run_has_changed_is_left_to_that_run() -> None:
    world = settled()
    sick(world, "StorageReady")

    def moved(method: str) -> None:
        if method == "save":
            raise Conflict("somebody was faster")

    world.store.raise_before = moved
    done = repair_nodes(run_of(world)).counts
    assert (done["Conflict"], done["NodesRepaired"]) == (1, 0)


def test_a_failure_is_raised_after_the_others_are_done() -> None:
    world = settled()
    sick(world, "StorageReady")

    def fail(call: Call) -> None:
        if call.method == "publish":
            raise Transient("the API server is away")

    world.cluster.raise_before = fail
    with pytest.raises(Transient, match=r"Node node-.*: the API server is away"):
        repair_nodes(run_of(world))
    assert [claim.phase for claim in world.store.claims.values()] == [Phase.TERMINATING]


@pytest.mark.parametrize("beat", [None, timedelta(minutes=40), timedelta(seconds=30)])
def test_a_node_that_nobody_has_seen_since_it_became_unready_is_not_replaced(beat: timedelta | None) -> None:
    """Such as while the API server is away: the node may have recovered."""
    world = settled()
    sick(world, "Ready", "Unknown", timedelta(minutes=1))
    world.unseen_until = world.now + timedelta(days=1)
    world.now += timedelta(minutes=41)
    seen = None if beat is None else Heartbeat(world.now - beat, builders.NOW)

    report = repair_nodes(run_of(world, last_heartbeat=lambda: seen))

    is_confirmed = beat == timedelta(seconds=30)
    assert [claim.is_ending for claim in world.store.claims.values()] == [is_confirmed]
    assert is_confirmed or (report.counts, report.due) == ({"SnapshotsStale": 1}, world.now)


def test_without_a_snapshot_nothing_is_done() -> None:
    world = settled()
    world.blobs.objects.clear()
    assert repair_nodes(run_of(world)).counts == {}


def test_while_karpenter_runs_unhealthy_nodes_are_left_to_it() -> None:
    world = settled()
    sick(world, "Ready", "Unknown")
    world.cluster.karpenter = True
    world.observe()
    assert repair_nodes(run_of(world)).counts == {}
    assert not any(claim.is_ending for claim in world.store.claims.values())
