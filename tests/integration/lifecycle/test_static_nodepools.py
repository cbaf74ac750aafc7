"""A static NodePool in the small world: filled, maintained, scaled, and reported if it cannot be filled."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.scenarios import crashes
from tests.scenarios.crashes import Story
from tests.scenarios.moves import MOVING
from tests.smallworld.world import CONCERNS, STEP, World


def world_of(replicas: int, **fields: Any) -> World:
    pool = builders.nodepool_manifest(**fields)
    pool["spec"]["replicas"] = replicas
    return World({}, nodepool=pool)


def scale(world: World, replicas: int) -> None:
    pool = world.cluster.nodepools["default"]
    pool["spec"]["replicas"] = replicas
    pool["metadata"]["generation"] += 1


def ready_zones(world: World) -> Counter[str]:
    done = [c for c in world.store.claims.values() if c.phase is Phase.INITIALIZED]
    return Counter(claim.zone for claim in done)


def run(world: World, minutes: float) -> None:
    """Let time pass although nothing is pending: a world without pods is settled as soon as its claims are."""
    end = world.now + timedelta(minutes=minutes)
    while world.now < end:
        world.settle(patience=timedelta(minutes=1))
        world.pass_time()
        for concern in CONCERNS:
            world.run(concern)


def test_a_static_nodepool_is_filled_across_zones_and_then_stable() -> None:
    world = world_of(len(builders.ZONES))
    run(world, 4)
    assert ready_zones(world) == Counter(dict.fromkeys(builders.ZONES, 1))
    launched = len(world.cloud.instances)
    run(world, 5)
    assert len(world.cloud.instances) == launched


def test_a_failed_node_is_replaced_in_its_zone() -> None:
    world = world_of(len(builders.ZONES))
    run(world, 4)
    world.cloud.become(world.cloud.alive()[0].id, "terminated")
    run(world, 10)
    assert ready_zones(world) == Counter(dict.fromkeys(builders.ZONES, 1))


def test_a_static_nodepool_follows_its_replicas_up_and_down() -> None:
    world = world_of(1)
    run(world, 3)
    scale(world, 3)
    run(world, 4)
    assert sum(ready_zones(world).values()) == 3
    scale(world, 1)
    run(world, 8)
    assert sum(ready_zones(world).values()) == 1
    assert len(world.cloud.alive()) == 1


def test_no_node_goes_as_surplus_beside_one_that_expires_at_the_same_time() -> None:
    world = world_of(2)
    run(world, 4)
    first, second = sorted(world.store.claims.values(), key=lambda claim: claim.name)
    scale(world, 1)
    world.observe()
    world.run(Concern.READINESS)
    world.store.claims[second.name] = replace(second, expire_after="1m")
    world.run(Concern.LIFECYCLE)
    ending = {claim.name: claim.cause for claim in world.store.claims.values() if claim.is_ending}
    assert ending == {second.name: "Expired"}, f"surplus alone would be {first.name}"


def test_drifted_nodes_are_replaced_one_by_one_without_falling_below_the_replicas() -> None:
    world = world_of(len(builders.ZONES), limits={"nodes": "4"})
    world.concerns = MOVING
    run(world, 4)
    old, fewest, most = set(world.store.claims), len(builders.ZONES), 0
    pool = world.cluster.nodepools["default"]
    pool["spec"]["template"]["metadata"] = {"labels": {"team": "blue"}}
    pool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    pool["metadata"]["generation"] += 1
    end = world.now + timedelta(minutes=40)
    while old & set(world.store.claims) and world.now < end:
        world.live(STEP)
        ready = [c for c in world.store.claims.values() if c.phase is Phase.INITIALIZED]
        fewest, most = min(fewest, len(ready)), max(most, len(world.cloud.alive()))
    assert old & set(world.store.claims) == set()
    assert (fewest, most) == (len(builders.ZONES), len(builders.ZONES) + 1)
    assert ready_zones(world) == Counter(dict.fromkeys(builders.ZONES, 1))
    assert {claim.labels["team"] for claim in world.store.claims.values()} == {"blue"}


def test_the_limit_holds_if_a_node_is_interrupted_while_another_one_is_replaced() -> None:
    world = world_of(len(builders.ZONES), limits={"nodes": "4"})
    world.concerns = MOVING
    run(world, 4)
    pool = world.cluster.nodepools["default"]
    pool["spec"]["template"]["metadata"] = {"labels": {"team": "blue"}}
    pool["metadata"]["generation"] += 1
    most, was_warned = 0, False
    end = world.now + timedelta(minutes=15)
    while world.now < end:
        world.live(STEP)
        most = max(most, len(world.cloud.alive()))
        if world.store.moves and most == 4 and not was_warned:
            moving = {
                name for move in world.store.moves.values() for name in (*move.sources, *move.replacements)
            }
            other = next(c for c in world.store.claims.values() if c.name not in moving)
            world.warn(other.instance_id)
            was_warned = True
    assert was_warned
    assert most == 4
    assert {claim.labels.get("team") for claim in world.store.claims.values()} == {"blue"}
    assert ready_zones(world) == Counter(dict.fromkeys(builders.ZONES, 1))


def test_failed_launches_are_shown_on_the_nodepool() -> None:
    world = world_of(1, nodeclass="missing")
    run(world, 2)
    reported = [event for event in world.cluster.events if event.reason == "ReplicasMissing"]
    assert reported
    assert "EC2NodeClass 'missing'" in reported[0].message


def test_a_static_nodepool_that_readiness_has_yet_to_read_is_no_cause_for_a_warning() -> None:
    world = world_of(1)
    run(world, 3)
    scale(world, 2)
    run(world, 4)
    assert sum(ready_zones(world).values()) == 2
    assert [event for event in world.cluster.events if event.reason == "ReplicasMissing"] == []


def test_a_limit_below_the_replicas_is_shown_on_the_nodepool() -> None:
    world = world_of(3, limits={"nodes": "2"})
    run(world, 4)
    assert sum(ready_zones(world).values()) == 2
    reported = [event.message for event in world.cluster.events if event.reason == "ReplicasMissing"]
    assert reported
    assert "limits.nodes is 2" in reported[0]


@pytest.mark.exhaustive
def test_a_crash_at_any_call_does_not_change_the_number_of_nodes() -> None:
    pool = builders.nodepool_manifest()
    pool["spec"]["replicas"] = 1
    reported = list(crashes.crashes(Story("a static NodePool", {"web-0": {}}, nodepool=pool), crashes.SAMPLE))
    assert len(reported) > crashes.SAMPLE + 1
    assert {tuple(fatal): found for fatal, found in reported if found} == {}
