"""The capacity of a joined node is used by later launches, in this and in every cluster of the account."""

from __future__ import annotations

import gzip
import json
from typing import Any

from nodesmith.keys import decision_key
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.learned import Boot
from tests import builders
from tests.smallworld.world import World, pod_manifest

ANTI_AFFINITY: dict[str, Any] = {"affinity": builders.anti_affinity("web")}


def newest(world: World) -> NodeClaim:
    return max(world.store.claims.values(), key=lambda claim: claim.created_at)


def launched_with(world: World, name: str) -> NodeClaim:
    """Return the claim that is launched for another pod, before its node has joined."""
    known = set(world.store.claims)
    world.pods[name] = pod = pod_manifest(name, **ANTI_AFFINITY)
    world.cluster.pods[f"default/{name}"] = pod
    while not set(world.store.claims) - known or not newest(world).instance_id:
        world.observe()
        world.pass_time()
        world.run(Concern.PROVISIONING)
    return newest(world)


def test_the_second_launch_uses_the_capacity_observed_on_the_first_node() -> None:
    world = World({})
    first = launched_with(world, "web-0")
    guess = first.capacity.memory_bytes
    world.settle()
    (boot,) = world.store.offered
    shown = world.store.offered[boot].memory_bytes
    assert shown < guess, "nodes of this world have less than estimated"
    assert boot == Boot(first.instance_type, first.image_id)

    second = launched_with(world, "web-1")

    assert (second.instance_type, second.image_id) == (first.instance_type, first.image_id)
    assert second.capacity.memory_bytes == shown
    assert second.allocatable.fits_in(second.capacity)
    world.settle()
    assert world.violations() == []


def test_another_cluster_of_the_account_uses_the_observed_capacity_for_its_first_node() -> None:
    world, other = World({}), World({})
    first = launched_with(world, "web-0")
    world.settle()
    other.store.offered = world.store.offered
    assert launched_with(other, "web-0").capacity.memory_bytes < first.capacity.memory_bytes


def test_nothing_is_written_for_nodes_with_the_known_capacity() -> None:
    written = []
    world = World({f"web-{n}": pod_manifest(f"web-{n}", **ANTI_AFFINITY) for n in range(4)})
    world.store.raise_after = lambda method: written.append(method)
    world.settle()
    assert world.violations() == []
    assert len(world.store.claims) == 4
    assert written.count("learn") == len(world.store.offered)


def test_the_record_of_a_decision_contains_the_observed_capacity() -> None:
    world = World({})
    launched_with(world, "web-0")
    world.settle()
    second = launched_with(world, "web-1")
    key = decision_key(builders.CLUSTER, second.decision)
    written = json.loads(gzip.decompress(world.blobs.objects[key]))
    assert [entry[:2] for entry in written["inputs"]["ledger"]["learned"]] == [
        [second.instance_type, second.image_id]
    ]
