"""Termination continues as soon as its condition is met, without waiting for a tick. The world's step is a second."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import INFORMED, Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.builders import EXPRESS, nodepool_manifest
from tests.scenarios import moves
from tests.scenarios.moves import LIVES, until
from tests.smallworld.world import World, pod_manifest

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.smallworld.world.STEP", SECOND)
    # A forwarder sends termination hints only for terminating nodes.
    monkeypatch.setattr(
        "tests.smallworld.world.INFORMED", tuple(c for c in INFORMED if c is not Concern.TERMINATION)
    )


def evicted(world: World) -> bool:
    return any(call.method == "evict" for call in world.cluster.calls)


def is_replaced(world: World) -> bool:
    """Return whether a node bought after the world had settled is ready."""
    young = max(world.store.claims.values(), key=lambda claim: claim.created_at)
    return len(world.store.claims) > 1 and young.phase is Phase.INITIALIZED


def test_a_node_whose_replacement_is_ready_is_drained_within_3_seconds() -> None:
    world = LIVES[0].begun()
    ready = until(world, lambda: is_replaced(world))
    took = until(world, lambda: evicted(world)) - ready
    assert took <= timedelta(seconds=3)


def test_a_node_that_expires_is_drained_within_3_seconds_of_its_replacement_being_ready() -> None:
    world = moves.settled(2)
    (claim,) = world.store.claims.values()
    world.store.claims[claim.name] = replace(claim, created_at=world.now - timedelta(hours=720))
    ready = until(world, lambda: is_replaced(world))
    assert until(world, lambda: evicted(world)) - ready <= timedelta(seconds=3)


@pytest.mark.parametrize("before_tick", [8, 31, 57])
def test_a_pod_is_evicted_within_2_seconds_of_the_end_of_its_protection(before_tick: int) -> None:
    world = World({"web-0": pod_manifest("web-0")})
    world.settle()
    until(world, lambda: world.until_tick() == before_tick * SECOND)
    pod = world.pods["web-0"]
    pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "1m"}
    pod["status"]["startTime"] = format_time(world.now)
    ends = world.now + timedelta(minutes=1)
    (claim,) = world.store.claims.values()
    world.cluster.delete("NodeClaim", claim.name)
    world.observe()
    world.run(Concern.TERMINATION)
    took = until(world, lambda: evicted(world)) - ends
    assert timedelta(0) <= took <= timedelta(seconds=2)


@pytest.mark.parametrize("before_tick", [4, 25, 51])
def test_a_protected_pod_is_deleted_its_grace_period_before_the_instance_terminates_at_the_deadline(
    before_tick: int,
) -> None:
    pool = builders.nodepool_manifest()
    pool["spec"]["template"]["spec"]["terminationGracePeriod"] = "60s"
    world = World({"web-0": pod_manifest("web-0", terminationGracePeriodSeconds=30)}, nodepool=pool)
    world.settle()
    until(world, lambda: world.until_tick() == before_tick * SECOND)
    world.pods["web-0"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    (claim,) = world.store.claims.values()
    deadline = world.now + timedelta(seconds=60)
    world.cluster.delete("NodeClaim", claim.name)
    world.observe()
    world.run(Concern.TERMINATION)
    reported = until(world, lambda: world.pods["web-0"]["metadata"].get("deletionTimestamp"))
    assert timedelta(0) <= reported - (deadline - timedelta(seconds=30)) <= timedelta(seconds=2)
    world.pods["web-0"]["metadata"]["finalizers"] = ["example.com/stays"]
    gone = until(world, lambda: world.terminations)
    assert timedelta(0) <= gone - deadline <= timedelta(seconds=2)
    looks = [call for call in world.hints.sent if call.concern is Concern.TERMINATION]
    assert len(looks) < 12, "there are no runs without work"


@pytest.mark.parametrize("before_tick", [8, 31, 57])
def test_a_node_that_cannot_be_replaced_earlier_expires_to_the_second(before_tick: int) -> None:
    pool = nodepool_manifest(requirements=EXPRESS)
    pool["spec"]["template"]["spec"]["expireAfter"] = "20m"
    pool["spec"]["disruption"] = {"budgets": [{"nodes": "0"}]}  # prevents replacement before the expiry
    world = World({"web-0": pod_manifest("web-0")}, nodepool=pool)
    world.settle()
    until(world, lambda: world.until_tick() == before_tick * SECOND)
    (claim,) = world.store.claims.values()
    ended = until(world, lambda: world.store.claims[claim.name].is_ending, timedelta(minutes=25))
    assert timedelta(0) <= ended - claim.created_at - timedelta(minutes=20) <= 2 * SECOND


def test_scaling_down_a_static_nodepool_terminates_nodes_within_3_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = nodepool_manifest(requirements=EXPRESS)
    pool["spec"]["replicas"] = 3
    world = World({}, nodepool=pool)
    world.observe()
    until(world, lambda: [c.phase for c in world.store.claims.values()] == [Phase.INITIALIZED] * 3)
    until(world, lambda: world.until_tick() == 40 * SECOND)
    # A forwarder sends hints about changed NodePools to readiness, and otherwise only to provisioning.
    monkeypatch.setattr("tests.smallworld.world.INFORMED", (Concern.READINESS, Concern.PROVISIONING))
    world.cluster.nodepools["default"]["spec"]["replicas"] = 1
    world.observe()
    began = world.now
    took = until(world, lambda: sum(c.is_ending for c in world.store.claims.values()) == 2) - began
    assert took <= 3 * SECOND
