"""Disruption starts as soon as an event or a time allows it, regardless of ticks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.moves import SECOND_LOOK
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.moves import Reason
from tests.builders import EXPRESS, NOW, nodepool_manifest
from tests.samples import sampled
from tests.scenarios.moves import MOVING, until
from tests.smallworld.world import World, pod_manifest

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
BEFORE_TICKS = pytest.mark.parametrize("before_tick", [57, 41, 22, 5])
ALL = {"nodes": "100%"}


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.smallworld.world.STEP", SECOND)


def settled(nodes: int, policy: str = "WhenEmptyOrUnderutilized", **disruption: Any) -> World:
    """Return a cluster with this many nodes, each filled by one pod, after a run of disruption."""
    pods = {f"web-{number}": pod_manifest(f"web-{number}", cpu="12") for number in range(nodes)}
    pool = nodepool_manifest(requirements=EXPRESS)
    pool["spec"]["disruption"] = {"consolidationPolicy": policy, "budgets": [ALL], **disruption}
    world = World(pods, nodepool=pool)
    world.concerns = MOVING
    world.settle()
    world.live(3 * MINUTE)
    assert len(world.store.claims) == nodes
    return world


def until_before_tick(world: World, seconds: int) -> None:
    until(world, lambda: world.until_tick() == seconds * SECOND)


def ending(world: World) -> list[NodeClaim]:
    return [claim for claim in world.store.claims.values() if claim.is_ending]


def relabel(world: World) -> None:
    """Change the NodePool so that its nodes drift."""
    template = world.cluster.nodepools["default"]["spec"]["template"]
    template["metadata"] = {"labels": {"team": "blue"}}


@BEFORE_TICKS
def test_a_node_is_terminated_20_seconds_after_its_last_pod_has_left(before_tick: int) -> None:
    world = settled(2)
    until_before_tick(world, before_tick)
    world.remove(["web-0"])
    world.observe()
    began = world.now
    assert until(world, lambda: ending(world)) - began <= SECOND_LOOK + 5 * SECOND


@BEFORE_TICKS
def test_consolidate_after_is_accurate_to_the_second(before_tick: int) -> None:
    world = settled(2, consolidateAfter="45s")
    until_before_tick(world, before_tick)
    world.remove(["web-0"])
    world.observe()
    began = world.now
    took = until(world, lambda: ending(world)) - began
    assert 45 * SECOND + SECOND_LOOK <= took <= 45 * SECOND + SECOND_LOOK + 5 * SECOND


@BEFORE_TICKS
def test_a_node_without_pods_is_terminated_as_soon_as_it_is_ready(before_tick: int) -> None:
    world = settled(1)
    until_before_tick(world, before_tick)
    world.add("late-0", cpu="12")
    world.observe()
    until(world, lambda: any(c.phase is Phase.REGISTERED for c in world.store.claims.values()))
    world.remove(["late-0"])
    ready = until(world, lambda: all(c.phase is Phase.INITIALIZED for c in world.store.claims.values()))
    assert until(world, lambda: ending(world)) - ready <= SECOND_LOOK + 5 * SECOND


@BEFORE_TICKS
def test_a_drifted_node_is_replaced_when_its_pods_protection_ends(before_tick: int) -> None:
    world = settled(1, consolidateAfter="Never")
    pod = world.pods["web-0"]
    pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "3m"}
    pod["status"]["startTime"] = format_time(world.now)
    ends = world.now + 3 * MINUTE
    relabel(world)
    world.observe()
    until_before_tick(world, before_tick)
    assert not world.store.moves
    assert timedelta(0) <= until(world, lambda: world.store.moves) - ends <= 2 * SECOND


def test_a_drifted_node_is_replaced_when_a_budgets_window_ends() -> None:
    ends = NOW + 20 * MINUTE  # it begins at noon
    window = {"nodes": "0", "schedule": "0 12 * * *", "duration": "20m"}
    world = settled(1, consolidateAfter="Never", budgets=[window])
    relabel(world)
    world.live(SECOND)
    assert not world.store.moves
    until(world, lambda: ends - world.now < MINUTE, 30 * MINUTE)
    world._next_tick += 27 * SECOND  # otherwise the tick would come at that time
    assert timedelta(0) <= until(world, lambda: world.store.moves) - ends <= 2 * SECOND


def test_the_next_nodes_are_replaced_as_soon_as_the_budget_allows() -> None:
    world = settled(5, consolidateAfter="Never", budgets=[{"nodes": "3"}])
    relabel(world)
    world.observe()
    old = set(world.store.claims)
    until(world, lambda: world.store.moves)
    gone = until(world, lambda: old - world.store.claims.keys())
    new = until(world, lambda: any(move.proposed_at >= gone for move in world.store.moves.values()))
    assert new - gone <= 2 * SECOND


@BEFORE_TICKS
def test_an_abandoned_moves_nodes_are_candidates_again_after_their_back_off(before_tick: int) -> None:
    world = settled(2)
    until_before_tick(world, before_tick)
    world.remove(["web-0"])
    world.observe()
    until(world, lambda: world.store.moves)
    (move,) = world.store.moves.values()
    assert move.reason is Reason.EMPTY
    world.add("late-0", cpu="12", nodeName=world.store.claims[move.sources[0]].node_name)
    left = until(world, lambda: any(each.is_over for each in world.store.moves.values()))
    world.remove(["late-0"])
    again = until(world, lambda: any(not each.is_over for each in world.store.moves.values()))
    assert again - left - 5 * MINUTE <= 3 * SECOND


def looks(world: World, span: timedelta) -> Iterator[datetime]:
    """Run the world and return the times at which something other than a tick invoked disruption."""
    end, run = world.now + span, world.run
    woken: list[datetime] = []

    def count(concern: Concern) -> None:
        if concern is Concern.DISRUPTION and world.until_tick() != MINUTE:
            woken.append(world.now)
        run(concern)

    world.run = count  # type: ignore[method-assign]
    while world.now < end:
        world.live(SECOND)
    return iter(woken)


ENDLESS = {"nodes": "0", "schedule": "* * * * *", "duration": "2m"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("nodes", "disruption"),
    [
        (3, {"consolidateAfter": "1m"}),
        (3, {"budgets": [ENDLESS]}),
        (3, {"budgets": [{"nodes": "0"}]}),
        (3, {"consolidateAfter": "Never"}),
    ],
    ids=["quiet", "a window without end", "no disruption at all", "no consolidation"],
)
def test_in_a_quiet_cluster_only_ticks_invoke_disruption(nodes: int, disruption: dict[str, Any]) -> None:
    world = settled(nodes, **disruption)
    world.remove(["web-0"])
    world.observe()
    world.live(10 * MINUTE)
    assert list(looks(world, sampled(12, whole=30) * MINUTE)) == []


@pytest.mark.exhaustive
def test_with_constant_pod_churn_few_hints_of_disruption_to_itself_are_pending() -> None:
    world = settled(3, consolidateAfter="30s")
    most = 0
    for number in range(sampled(100, whole=300)):
        world.remove([name for name in world.pods if name.startswith("job")])
        world.add(f"job-{number}", cpu="1")
        world.live(SECOND)
        pending = [m for m in world.hints.waiting if m.concern is m.sender is Concern.DISRUPTION]
        most = max(most, len(pending))
    assert most <= 2
