"""Pods with a preferred zone spread in the small world: nodes are bought for the spread, but none is kept for it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from math import fsum

import pytest

from nodesmith.model.apimachinery.labels import INSTANCE_TYPE, ZONE
from nodesmith.model.karpenter.disruption import REBALANCE_ZONES
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.scenarios.moves import MOVING, ON_DEMAND
from tests.smallworld.world import World, pod_manifest

SPREAD = {"topologySpreadConstraints": builders.spread(hard=False)}
SIZES = builders.expression(INSTANCE_TYPE, "In", "c5.2xlarge", "c5.4xlarge")
QUIET = timedelta(minutes=2)


def grown(*, rebalances: bool = False) -> World:
    """Return twenty pods with a preferred zone spread, on the three nodes that were bought for them."""
    pods = {f"web-{n:02d}": pod_manifest(f"web-{n:02d}", **SPREAD) for n in range(20)}
    nodepool = builders.nodepool_manifest(requirements=[*ON_DEMAND, SIZES])
    nodepool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    if rebalances:
        nodepool["metadata"]["annotations"] = {REBALANCE_ZONES: "On"}
    world = World(pods, nodepool=nodepool)
    world.concerns = MOVING
    world.settle()
    world.live(QUIET)
    assert by_zone(world) == [7, 7, 6]
    return world


def by_zone(world: World) -> list[int]:
    """Count pods per zone that has nodes, in descending order."""
    zones = {name: node["metadata"]["labels"][ZONE] for name, node in world.cluster.nodes.items()}
    counted = Counter(zones[pod["spec"]["nodeName"]] for pod in world.pods.values())
    return sorted((counted[zone] for zone in set(zones.values())), reverse=True)


def keep(world: World, counts: tuple[int, int, int]) -> None:
    """Delete all but this many pods on each node, as a ReplicaSet would."""
    nodes = sorted(world.cluster.nodes)
    for node, count in zip(nodes, counts, strict=True):
        world.remove(sorted(n for n, p in world.pods.items() if p["spec"]["nodeName"] == node)[count:])


def priced(world: World) -> float:
    claims = (c for c in world.store.claims.values() if c.phase is not Phase.TERMINATED)
    return fsum(claim.price_hourly_usd for claim in claims)


def watched(world: World, span: timedelta) -> list[float]:
    """Let time pass, and return the cost of the fleet at each step."""
    found, end = [], world.now + span
    while world.now < end:
        world.step()
        found.append(priced(world))
    return found


def nodes(world: World) -> set[str]:
    return set(world.cluster.nodes)


@pytest.mark.parametrize("counts", [(4, 3, 3), (6, 2, 2), (1, 4, 5)])
def test_scaling_down_and_up_by_half_removes_and_adds_a_node(counts: tuple[int, int, int]) -> None:
    world = grown()
    full = priced(world)
    keep(world, counts)
    assert max(watched(world, timedelta(minutes=8))) <= full + 1e-9, "no node was needed"
    world.settle()
    few = nodes(world)
    assert len(few) == 2
    most, least = by_zone(world)
    assert most - least <= max(1, max(counts) - min(counts))
    for _ in range(6):
        world.now += timedelta(minutes=9)
        world.observe()
        prices = watched(world, timedelta(minutes=1))
        assert max(prices) == pytest.approx(full * 2 / 3)
    assert nodes(world) == few, "still after an hour"

    for number in range(20, 30):
        world.add(f"web-{number}", **SPREAD)
    world.settle()
    world.live(timedelta(minutes=4))
    world.settle()
    assert by_zone(world) == [7, 7, 6]
    assert few < nodes(world)
    again = nodes(world)
    world.now += timedelta(hours=1)
    world.observe()
    world.live(timedelta(minutes=4))
    assert nodes(world) == again, "moves do not oscillate"
    assert world.violations() == []


def test_with_zone_rebalancing_three_nodes_stay_for_ten_pods() -> None:
    world = grown(rebalances=True)
    keep(world, (4, 3, 3))
    world.live(timedelta(minutes=8))
    world.now += timedelta(hours=1)
    world.observe()
    world.live(timedelta(minutes=4))
    assert by_zone(world) == [4, 3, 3]
    assert world.violations() == []


def test_pods_of_a_deleted_node_use_free_capacity_on_others() -> None:
    world = grown()
    keep(world, (4, 3, 3))
    gone = min(world.cluster.nodeclaims)
    world.cluster.delete("NodeClaim", gone)
    world.live(timedelta(minutes=8))
    world.settle()
    assert len(nodes(world)) == 2
    assert world.violations() == []
