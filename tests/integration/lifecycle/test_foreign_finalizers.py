"""Nodes that finalizers of other controllers hold: their NodeClaims are deleted after them, without useless calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from tests.samples import sampled
from tests.smallworld.world import Boundaries, World, node_manifest, pod_manifest

BACKUP = "example.com/backup"
ENDED = timedelta(minutes=4)
"""After this time the instance of a node whose NodeClaim was deleted is gone."""


def held_world(boundaries: Boundaries | None = None) -> tuple[World, NodeClaim]:
    """Return a world with a node that another controller holds, and whose NodeClaim has just been deleted."""
    world = World({"web-0": pod_manifest("web-0")}, boundaries=boundaries)
    world.settle()
    (claim,) = world.store.claims.values()
    world.cluster.nodes[claim.node_name]["metadata"]["finalizers"].append(BACKUP)
    world.cluster.delete("NodeClaim", claim.name)
    return world, claim


def let_go(world: World, node: str) -> None:
    """Remove the other controller's finalizer from a Node that is being deleted."""
    metadata = world.cluster.nodes[node]["metadata"]
    metadata["finalizers"].remove(BACKUP)
    if metadata.get("deletionTimestamp") and not metadata["finalizers"]:
        del world.cluster.nodes[node]


def finalizers(world: World, node: str) -> list[str]:
    found: list[str] = world.cluster.nodes[node]["metadata"]["finalizers"]
    return found


def test_a_nodeclaim_is_deleted_after_its_node() -> None:
    world, claim = held_world()
    world.live(ENDED)
    assert finalizers(world, claim.node_name) == [BACKUP], (
        "our finalizer is removed once the instance is gone"
    )
    shown = world.cluster.nodeclaims[claim.name]["metadata"]
    assert (shown["finalizers"], bool(shown["deletionTimestamp"])) == ([TERMINATION_FINALIZER], True)
    assert claim.name in world.store.claims
    world.live(timedelta(hours=1))
    assert claim.name in world.store.claims
    let_go(world, claim.node_name)
    world.observe()
    world.live(timedelta(seconds=10))
    assert claim.name not in world.store.claims
    assert claim.name not in world.cluster.nodeclaims
    assert world.violations() == []


def test_while_a_node_is_held_no_ec2_call_and_no_write_is_made() -> None:
    world, claim = held_world()
    world.live(ENDED)
    runs, calls, writes = world.runs, len(world.cloud.calls), len(world.cluster.calls)
    revision = world.store.claims[claim.name].revision
    world.concerns = (Concern.TERMINATION,)  # garbage collection lists instances in any case
    world.live(timedelta(hours=1))
    assert (len(world.cloud.calls), len(world.cluster.calls)) == (calls, writes)
    assert world.store.claims[claim.name].revision == revision
    assert world.runs - runs <= 60, "only ticks"


def test_events_on_node_and_nodeclaim_name_the_finalizer() -> None:
    world, claim = held_world()
    world.live(ENDED)
    message = f"Node {claim.node_name} is held by finalizer {BACKUP} of another controller"
    reported = [e for e in world.cluster.events if e.reason == "AwaitingNodeDeletion"]
    assert [(e.kind, e.name, e.message, e.warning) for e in reported] == [
        ("NodeClaim", claim.name, message, False),
        ("Node", claim.node_name, message, False),
    ]
    conditions = world.cluster.nodeclaims[claim.name]["status"]["conditions"]
    (last,) = (c for c in conditions if c["type"] == "InstanceTerminating")
    assert (last["status"], last["message"]) == ("True", message)


def test_a_nodeclaim_does_not_wait_for_another_instances_node_of_the_same_name() -> None:
    world, claim = held_world()
    world.live(ENDED)
    made = node_manifest(claim.node_name, "aws:///us-east-1a/i-another", claim.allocatable, world.now)
    made["metadata"]["finalizers"] = [BACKUP]
    world.cluster.nodes[claim.node_name] = made
    world.observe()
    world.run(Concern.TERMINATION)
    assert claim.name not in world.store.claims
    assert "deletionTimestamp" not in world.cluster.nodes[claim.node_name]["metadata"]


def test_with_a_stale_snapshot_a_nodeclaim_is_still_deleted_after_its_node() -> None:
    world, claim = held_world()
    world.live(ENDED)
    hidden = world.cluster.nodes.pop(claim.node_name)
    world.observe()
    world.cluster.nodes[claim.node_name] = hidden
    world.unseen_until = world.now + timedelta(minutes=10)
    world.live(timedelta(minutes=5))
    assert claim.name in world.store.claims, "the API server shows its Node"
    let_go(world, claim.node_name)
    world.live(timedelta(minutes=2))
    assert claim.name not in world.store.claims


@pytest.mark.parametrize("gone", ["node", "finalizer"])
def test_removing_a_node_during_instance_termination_leaves_nothing_behind(gone: str) -> None:
    world, claim = held_world()
    world.live(timedelta(seconds=70))
    if gone == "node":
        del world.cluster.nodes[claim.node_name]
    else:
        metadata: dict[str, Any] = world.cluster.nodes[claim.node_name]["metadata"]
        metadata["finalizers"] = [BACKUP]
    world.live(ENDED)
    if gone == "finalizer":
        assert claim.name in world.store.claims
        let_go(world, claim.node_name)
    world.settle()
    assert world.violations() == []


@pytest.mark.exhaustive
def test_a_crash_during_release_leaves_nothing_behind_and_keeps_the_order_of_deletion() -> None:
    undisturbed = Boundaries()
    assert _violations(undisturbed) == []
    last_calls = "release_node", "delete_nodeclaim", "FakeStore.forget", "publish"
    moments = [
        moment for moment in undisturbed.distinct() if undisturbed.moments[moment - 1][0].endswith(last_calls)
    ]
    assert len(moments) >= 8
    deaths = sampled(("after",), whole=("after", "before"))  # a call that is made, and not recorded, is worse
    for moment in [each for each in moments if undisturbed.moments[each - 1][0].startswith(deaths)]:
        assert _violations(Boundaries(frozenset({moment}), look=None)) == [], undisturbed.moments[moment - 1][
            0
        ]


def _violations(boundaries: Boundaries) -> list[str]:
    """Run the termination of a node that is held for some minutes, and return the violations."""
    world, claim = held_world()
    world.boundaries = boundaries
    boundaries.look = world.held
    broken: list[str] = []
    world.observe()
    until = world.now + timedelta(minutes=5)
    while world.now < until:
        world.step()
        if claim.name not in world.store.claims or claim.name not in world.cluster.nodeclaims:
            broken.append(f"{claim.name} went before its Node at {world.now}")
    let_go(world, claim.node_name)
    world.observe()
    world.settle()
    return broken[:1] + world.violations()
