"""A NodeClaim owns its Node. If Kubernetes deletes the Node with it, termination is still clean."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from tests.smallworld.world import Manifest, World, pod_manifest

THEIRS = {"apiVersion": "example.com/v1", "kind": "Machine", "name": "m", "uid": "uid-m"}


def settled() -> tuple[World, NodeClaim]:
    world = World({"web-0": pod_manifest("web-0")})
    world.settle()
    (claim,) = world.store.claims.values()
    return world, claim


def owners(world: World, claim: NodeClaim) -> list[Manifest]:
    found: list[Manifest] = world.cluster.nodes[claim.node_name]["metadata"].get("ownerReferences", [])
    return found


def tear_away(world: World, claim: NodeClaim) -> None:
    """Remove a NodeClaim's finalizers and delete it."""
    world.cluster.nodeclaims[claim.name]["metadata"]["finalizers"] = []
    world.cluster.delete("NodeClaim", claim.name)
    assert claim.name not in world.cluster.nodeclaims


def test_a_registered_node_has_its_nodeclaim_as_owner() -> None:
    world, claim = settled()
    (owner,) = owners(world, claim)
    assert (owner["kind"], owner["name"], owner["blockOwnerDeletion"]) == ("NodeClaim", claim.name, True)
    assert owner["uid"] == world.cluster.nodeclaims[claim.name]["metadata"]["uid"]


def test_a_node_whose_nodeclaim_is_force_deleted_is_drained_and_leaves_nothing_behind() -> None:
    world, claim = settled()
    tear_away(world, claim)
    world.pass_time()
    node = world.cluster.nodes[claim.node_name]["metadata"]
    assert node["deletionTimestamp"]
    assert node["finalizers"] == [TERMINATION_FINALIZER], "it stays until it is drained"
    world.settle()
    assert claim.name not in world.store.claims
    assert world.violations() == [], "its pod was evicted, and its instance terminated"


def test_a_recreated_nodeclaim_becomes_the_owner_and_other_owners_stay() -> None:
    world, claim = settled()
    owners(world, claim).append(THEIRS)
    made = world.cluster.nodeclaims[claim.name]
    world.cluster.nodeclaims[claim.name] = {**made, "metadata": {**made["metadata"], "uid": "uid-new"}}
    world.observe()
    world.live(timedelta(minutes=2))
    assert {owner["uid"] for owner in owners(world, claim)} == {"uid-m", "uid-new"}
    assert world.violations() == []


@pytest.mark.parametrize("before", [None, [THEIRS]], ids=["no owner", "another owner"])
def test_a_node_registered_by_an_older_version_gets_its_owner(before: list[Manifest] | None) -> None:
    world, claim = settled()
    metadata = world.cluster.nodes[claim.node_name]["metadata"]
    metadata.pop("ownerReferences")
    if before:
        metadata["ownerReferences"] = [*before]
    world.observe()
    world.live(timedelta(minutes=2))
    assert [owner["kind"] for owner in owners(world, claim)] == [
        *(["Machine"] if before else []),
        "NodeClaim",
    ]
