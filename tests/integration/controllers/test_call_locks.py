"""A cluster with many CreateFleet calls takes a lock for them, so that EC2's limits leave room for other clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.controllers.provisioning import Outcome, Provisioning, provision
from nodesmith.errors import RetryScheduled
from nodesmith.launcheffects import (
    FEW_CALLS,
    FEW_NODES_TOLERANCE,
    LOCKED_FOR,
    LOCKED_WHILE_SHORT,
    MANY_CALLS,
    Allowance,
)
from nodesmith.model.ec2.launches import Deferred, LaunchOutcome, LaunchRequest
from nodesmith.model.functions import Concern
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.ledger.region import SHORT_FOR, CallBudget, Region, Scarcity
from nodesmith.model.policies import NodeSettings
from tests import builders
from tests.fakes.catalogs import FakeCatalogs
from tests.fakes.cloud import FakeCloud
from tests.fakes.store import FakeStore
from tests.smallworld.world import World, pod_manifest


def allowance(store: FakeStore, seconds: float = 0) -> Allowance:
    return Allowance(store, lambda: builders.NOW + timedelta(seconds=seconds))


def with_pools(count: int) -> World:
    """Return a cluster whose pods need one NodePool each, so that no two of their nodes share a call."""
    names = [f"team-{number:03}" for number in range(count)]
    world = World({name: pod_manifest(name, nodeSelector={"team": name}) for name in names})
    for name in names:
        pool = builders.nodepool_manifest(name, labels={"team": name})
        world.cluster.nodepools[name] = pool
        world.store.contents[f"NodePool/{name}"] = builders.content_of(pool)
    world.observe()
    return world


def provisioning_delays(world: World) -> list[timedelta]:
    """Return after which delays provisioning is woken, and clear its hints."""
    hints = [m.due_at - world.now for m in world.hints.waiting if m.concern is Concern.PROVISIONING]
    world.hints.waiting.clear()
    return sorted(hints)


def run(world: World) -> Outcome:
    return provision(_provisioning(world))


def _provisioning(world: World) -> Provisioning:
    """Return one run on a dozen types: with hundreds of them, a hundred NodePools take seconds."""
    return replace(world.provisioning(), catalogs=FakeCatalogs(world.sold))


def test_a_few_calls_need_no_lock() -> None:
    store = FakeStore()
    own = allowance(store)

    assert [own.of(FEW_CALLS - 1), own.of(1)] == [FEW_CALLS - 1, 1]
    assert (own.until, store.locks) == (None, {})


def test_many_calls_take_the_lock_and_are_limited() -> None:
    own = allowance(FakeStore())

    assert [own.of(3), own.of(1000), own.of(1)] == [3, MANY_CALLS - 3, 0]
    assert own.until == builders.NOW + LOCKED_FOR


def test_clusters_of_a_region_with_many_calls_share_its_budget() -> None:
    budget = [CallBudget()]
    stores = [FakeStore(name=name, budget=budget) for name in ("first", "second")]
    own = [allowance(store) for store in stores]

    assert [each.of(1000) for each in own] == [MANY_CALLS, 0]
    assert [each.until for each in own] == [builders.NOW + LOCKED_FOR] * 2, "each will be woken"

    later = [allowance(store, seconds=12) for store in stores]
    assert [each.of(1000) for each in later] == [16, 16]


def test_calls_made_without_the_lock_count_towards_the_limit_of_the_run() -> None:
    store = FakeStore(budget=[CallBudget(calls=10, at=builders.NOW)])
    own = allowance(store)

    assert [own.of(12), own.of(20)] == [12, 10]


def test_a_cluster_that_gets_no_calls_buys_nothing_and_is_woken_when_its_lock_expires() -> None:
    world = with_pools(FEW_CALLS + 1)
    world.store.budget[0] = CallBudget(calls=0, at=world.now)

    outcome = run(world)

    assert (outcome.launched, outcome.decisions, provisioning_delays(world)) == ([], [], [LOCKED_FOR])
    world.now += LOCKED_FOR
    assert len(run(world).launched) == FEW_CALLS + 1


def test_a_run_with_many_calls_makes_none_while_another_holds_the_lock() -> None:
    store = FakeStore()
    allowance(store).of(FEW_CALLS + 1)

    late = allowance(store, seconds=5)
    assert [late.of(FEW_CALLS + 1), late.of(1)] == [0, 0]
    assert late.until is None


def test_a_run_with_few_calls_makes_them_while_another_holds_the_lock() -> None:
    store = FakeStore()
    allowance(store).of(FEW_CALLS + 1)

    assert allowance(store, seconds=5).of(FEW_CALLS) == FEW_CALLS


def test_the_next_run_can_take_an_expired_lock() -> None:
    store = FakeStore()
    allowance(store).of(FEW_CALLS + 1)

    assert allowance(store, seconds=LOCKED_FOR.total_seconds()).of(FEW_CALLS + 1) == FEW_CALLS + 1


def test_nodes_that_need_few_calls_are_bought_in_one_run() -> None:
    world = with_pools(FEW_CALLS)

    assert len(run(world).launched) == FEW_CALLS
    assert provisioning_delays(world) == []


def test_a_run_with_the_lock_buys_as_many_nodes_as_allowed_and_wakes_the_next_run() -> None:
    world = with_pools(MANY_CALLS + 5)

    outcome = run(world)

    assert len(outcome.launched) == MANY_CALLS
    assert provisioning_delays(world) == [LOCKED_FOR]
    assert outcome.due == world.now


def test_a_run_without_the_lock_buys_nothing_sends_no_hints_and_leaves_no_open_decision() -> None:
    world = with_pools(MANY_CALLS + FEW_CALLS + 1)
    run(world)
    provisioning_delays(world)

    world.now += LOCKED_FOR / 2
    outcome = run(world)

    assert (outcome.launched, outcome.decisions, provisioning_delays(world)) == ([], [], [])
    assert len(world.store.claims) == MANY_CALLS


def test_successive_runs_buy_every_pods_node_once() -> None:
    world = with_pools(MANY_CALLS + 5)

    for _ in range(2):
        run(world)
        world.now += LOCKED_FOR

    nominated = [pod for claim in world.store.claims.values() for pod in claim.nominated]
    assert len(nominated) == len(set(nominated)) == MANY_CALLS + 5


class Throttling(FakeCloud):
    """An EC2 that throttles every launch."""

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        del repeated
        return [Deferred(r.claim, "RequestLimitExceeded", "slower", nothing_begun=True) for r in requests]


def throttled(world: World) -> None:
    with pytest.raises(RetryScheduled):
        provision(replace(_provisioning(world), cloud=Throttling(clock=world.clock)))


def test_a_throttled_run_with_the_lock_wakes_provisioning_once_after_the_lock_expires() -> None:
    world = with_pools(FEW_CALLS + 1)

    throttled(world)

    assert provisioning_delays(world) == [LOCKED_FOR]


def test_a_throttled_run_with_few_calls_wakes_provisioning_once_after_two_seconds() -> None:
    world = with_pools(FEW_CALLS)

    throttled(world)

    assert provisioning_delays(world) == [timedelta(seconds=2)]


def sharing(*worlds: World) -> None:
    """Have the clusters of these worlds share what clusters of a region share."""
    budget, region = [CallBudget()], [Region("", clusters=("a", "b"))]
    for name, world in zip("ab", worlds, strict=True):
        world.store.name, world.store.budget, world.store.region = name, budget, region


def test_after_ec2_has_throttled_a_call_other_clusters_take_even_a_few_calls_from_the_budget() -> None:
    first, second = with_pools(1), with_pools(2)
    sharing(first, second)
    throttled(first)
    second.store.budget[0] = replace(second.store.budget[0], calls=1, at=second.now)

    outcome = run(second)

    assert len(outcome.launched) == 1, "EC2 would throttle the second"
    assert provisioning_delays(second) == [LOCKED_WHILE_SHORT]
    second.now += LOCKED_WHILE_SHORT
    assert len(run(second).launched) == 1


def test_calls_are_short_for_a_minute_after_a_throttled_one() -> None:
    first, second = with_pools(1), with_pools(2)
    sharing(first, second)
    throttled(first)
    second.store.budget[0] = replace(second.store.budget[0], calls=0, at=second.now)
    second.now += SHORT_FOR

    assert len(run(second).launched) == 2
    assert second.store.locks == {}


def test_while_calls_are_short_a_run_without_the_lock_leaves_its_pods_to_the_next_one() -> None:
    first, second = with_pools(1), with_pools(2)
    sharing(first, second)
    throttled(first)
    second.store.take_lock(Concern.PROVISIONING, second.now, second.now + LOCKED_FOR)

    outcome = run(second)

    assert (outcome.decisions, outcome.launched, provisioning_delays(second)) == ([], [], [])
    assert second.store.release_lock(Concern.PROVISIONING, second.now + LOCKED_FOR), "it has left a mark"


def test_the_lock_is_kept_until_the_clusters_next_round_only_while_calls_are_short() -> None:
    own = allowance(FakeStore())
    own.of(FEW_CALLS + 1)

    own.end_round(10**6)

    assert own.until == builders.NOW + LOCKED_FOR


def test_a_run_that_needs_no_call_wakes_the_runs_that_it_has_kept_from_deciding() -> None:
    first, second = with_pools(1), with_pools(1)
    sharing(first, second)
    throttled(first)
    own = Allowance(second.store, second.clock)
    assert own.has_turn(second.store.load().spending)
    other = Allowance(second.store, second.clock)
    assert not other.has_turn(second.store.load().spending)

    assert own.end_turn(), "the other run came"
    assert second.store.locks == {}


def test_while_calls_are_short_plans_have_few_nodes() -> None:
    first, second = with_pools(1), with_pools(1)
    sharing(first, second)
    own, settings = Allowance(second.store, second.clock), NodeSettings(fragility_tolerance=0.01)
    assert own.has_turn(second.store.load().spending)
    assert own.with_fewer_nodes(settings) == settings
    throttled(first)

    assert own.has_turn(second.store.load().spending)

    assert own.with_fewer_nodes(settings).fragility_tolerance == 0
    assert own.with_fewer_nodes(settings).few_nodes_tolerance == FEW_NODES_TOLERANCE


def test_while_calls_are_short_a_cluster_in_line_decides_nothing_before_its_turn() -> None:
    world = with_pools(1)
    world.store.region, budget = [Region("")], CallBudget(calls=0, at=world.now)
    budget = budget.with_scarcity(Scarcity(is_throttled=True), world.now)
    before = [f"other-{number}" for number in range(30)]
    for name in before:
        _, budget = budget.take(name, 1, world.now - timedelta(seconds=1))
    world.store.budget[0] = budget

    assert run(world).launched == []
    (wait,) = provisioning_delays(world)
    assert wait == timedelta(seconds=7), "31 calls at 4.8 a second"
    world.now += wait - timedelta(seconds=1)
    early = run(world)
    assert (early.launched, early.decisions, provisioning_delays(world)) == ([], [], [])
    world.now += timedelta(seconds=1)
    for name in before:
        _, world.store.budget[0] = world.store.budget[0].take(name, 1, world.now)
    assert len(run(world).launched) == 1


def short_of_calls() -> World:
    """Return a world whose region has 47 other clusters, and one call left for now."""
    world = with_pools(1)
    world.store.region = [Region("")]
    budget = CallBudget().with_scarcity(Scarcity(is_throttled=True), world.now)
    for number in range(47):
        _, budget = budget.take(f"other-{number}", 1, world.now - timedelta(seconds=1))
    world.store.budget[0] = replace(budget, calls=1, waiting_since={})
    return world


def test_while_calls_are_short_the_next_purchase_waits_for_the_clusters_part_of_the_rate() -> None:
    world = short_of_calls()
    assert len(run(world).launched) == 1
    assert provisioning_delays(world) == [timedelta(seconds=10)], "48 clusters make 4.8 calls a second"
    world.now += timedelta(seconds=9)
    early = run(world)
    assert (early.launched, early.decisions) == ([], [])


def test_while_calls_are_short_a_cluster_alone_need_not_wait_for_others_after_a_purchase() -> None:
    world = with_pools(3)
    world.store.region = [Region("")]
    world.store.budget[0] = CallBudget().with_scarcity(Scarcity(is_throttled=True), world.now)

    assert len(run(world).launched) == 3
    assert provisioning_delays(world) == [LOCKED_WHILE_SHORT]


def test_a_throttled_purchase_is_repeated_before_the_next_round() -> None:
    world = short_of_calls()
    throttled(world)

    assert provisioning_delays(world) == [LOCKED_WHILE_SHORT]


def test_while_calls_are_short_one_call_serves_the_pods_of_a_throttled_one_and_those_that_came_since() -> (
    None
):
    world = World({"one": pod_manifest("one")})
    world.store.region = [Region("")]
    world.observe()
    throttled(world)
    world.cluster.pods["default/two"] = pod_manifest("two")
    world.now += LOCKED_WHILE_SHORT
    world.observe()

    (name,) = run(world).launched

    assert sorted(world.store.claims[name].nominated) == ["default/one", "default/two"]


def test_while_calls_are_short_a_throttled_replacement_of_a_move_is_repeated_as_it_is() -> None:
    world = World({"one": pod_manifest("one")})
    world.store.region = [Region("")]
    world.observe()
    throttled(world)
    (name,) = world.store.claims
    move = Move("m1", Reason.DRIFTED, ("gone",), Stage.REPLACING, world.now, world.now, (name,))
    world.store.moves["m1"] = move
    world.now += LOCKED_WHILE_SHORT
    world.observe()

    assert run(world).launched == [name]


def test_a_throttled_claim_is_repeated_as_it_is_once_calls_are_no_longer_short() -> None:
    world = with_pools(1)
    world.store.region = [Region("")]
    throttled(world)
    (name,) = world.store.claims
    world.now += SHORT_FOR

    assert run(world).launched == [name]
