"""Limits of disruption in the small world: a pause, an hourly rate, and budgets for drifted nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.ledger import Pause
from tests import builders
from tests.scenarios.moves import MOVING, ON_DEMAND, settled, shrink
from tests.smallworld.world import STEP, World, pod_manifest

HOUR = timedelta(hours=1)


def price(world: World) -> float:
    return sum(claim.price_hourly_usd for claim in world.store.claims.values() if not claim.is_ending)


def shown(world: World, kind: str) -> list[tuple[str, str]]:
    """Return status and reason of a condition of the NodePool, or of all NodeClaims."""
    objects: Any = [*world.cluster.nodepools.values(), *world.cluster.nodeclaims.values()]
    conditions = [c for each in objects for c in (each.get("status") or {}).get("conditions") or ()]
    return [(c["status"], c["reason"]) for c in conditions if c["type"] == kind]


def test_a_pause_stops_voluntary_disruption_until_it_ends() -> None:
    world = settled(7, ON_DEMAND)
    before = price(world)
    world.store.pause(Pause(world.now, "a release"))
    shrink(world, 2)
    world.live(timedelta(minutes=10))
    assert (world.store.moves, price(world)) == ({}, before)
    assert shown(world, "DisruptionPaused") == [("True", "Paused")]
    world.store.pause(None)
    world.live(timedelta(minutes=10))
    world.settle()
    assert price(world) < before / 2
    assert shown(world, "DisruptionPaused") == [("False", "Resumed")]
    assert world.violations() == []


def test_a_pause_aborts_a_move_that_is_not_draining_yet() -> None:
    world = settled(7, ON_DEMAND)
    shrink(world, 2)
    while not world.store.moves:
        world.live(STEP)
    world.store.pause(Pause(world.now))
    before = set(world.store.claims)
    world.live(timedelta(minutes=15))
    assert set(world.store.claims) == before
    assert (world.store.moves, world.violations()) == ({}, [])


def scattered(pods: int, annotations: dict[str, str]) -> World:
    """Return a cluster with one node per pod, of a NodePool whose budgets allow everything."""
    pool = builders.nodepool_manifest(requirements=ON_DEMAND)
    pool["metadata"]["annotations"] = annotations
    pool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    manifests = {f"web-{n}": pod_manifest(f"web-{n}", affinity=affinity) for n in range(pods)}
    world = World(manifests, nodepool=pool)
    world.concerns = MOVING
    world.settle()
    world.live(timedelta(minutes=2))
    assert len(world.cloud.alive()) == pods
    return world


def test_hourly_limits_of_a_nodepool_count_nodes_that_are_already_gone() -> None:
    world = scattered(4, {"nodesmith.dev/max-disruptions-per-hour": "2"})
    shrink(world, 0)
    world.live(timedelta(minutes=50))
    assert (len(world.cloud.alive()), len(world.store.claims)) == (2, 2)
    world.live(timedelta(minutes=25))
    world.settle()
    assert len(world.cloud.alive()) == 0


def test_drifted_nodes_have_a_condition_and_are_replaced_as_budgets_allow() -> None:
    world = scattered(4, {})
    pool = world.cluster.nodepools["default"]
    pool["spec"]["disruption"]["budgets"] = [{"nodes": "1"}]
    pool["spec"]["template"]["metadata"] = {"labels": {"team": "blue"}}
    pool["metadata"]["generation"] = 2
    old, at_once, reported = set(world.store.claims), 0, set[tuple[str, str]]()
    end = world.now + HOUR
    while old & set(world.store.claims) and world.now < end:
        world.live(STEP)
        at_once = max(at_once, sum(c.is_ending for c in world.store.claims.values()))
        reported.update(shown(world, "Drifted"))
    world.settle()
    assert old & set(world.store.claims) == set()
    assert (at_once, reported) == (1, {("True", "NodePoolDrifted")})
    assert {claim.labels["team"] for claim in world.store.claims.values()} == {"blue"}
    assert {claim.phase for claim in world.store.claims.values()} == {Phase.INITIALIZED}
    assert world.violations() == []
