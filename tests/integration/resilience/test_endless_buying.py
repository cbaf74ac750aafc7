"""Pods that never run on the nodes bought for them: purchases become ever rarer."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ledger.breakers import FIRST_WAIT
from nodesmith.model.policies import RESET_LAUNCHES
from tests import builders
from tests.samples import sampled
from tests.scenarios.runaway import (
    Oddly,
    Scheduler,
    add,
    after_daemons_larger_than_their_template,
    as_usual,
    pass_a_day,
    where_somebody_deletes_nodes,
    where_somebody_terminates_instances,
    with_preemption_by_pods_of_others,
)
from tests.smallworld.world import STEP, World

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MOST_IN_AN_HOUR = 3
MANY = sampled(3, whole=8)
USELESS_FOR = sampled(20 * MINUTE, whole=HOUR)
MOST_USELESS = MOST_IN_AN_HOUR + 2
"""How long a useless replacement is tempting, and how many nodes may be bought then: two by the move itself."""
SMALL_MILLICPU = 8000


def where_small_nodes_are_filled(world: Oddly) -> None:
    """Let foreign pods take all small nodes, so that consolidating a large node is useless."""
    for name, node in world.open_nodes().items():
        if int(node["status"]["allocatable"]["cpu"].removesuffix("m")) < SMALL_MILLICPU:
            world.fill(name, "ReplicaSet")
    as_usual(world)


ODDITIES = [
    after_daemons_larger_than_their_template,
    with_preemption_by_pods_of_others,
    where_somebody_deletes_nodes,
    where_somebody_terminates_instances,
]


@pytest.mark.parametrize("scheduler", ODDITIES)
def test_few_nodes_are_bought_in_an_hour_for_a_pod_that_never_runs(scheduler: Scheduler) -> None:
    world = Oddly(scheduler)
    world.live(HOUR)
    assert world.bought == MOST_IN_AN_HOUR


def test_after_the_fourth_attempt_none_is_bought_for_hours() -> None:
    world = Oddly(after_daemons_larger_than_their_template)
    pass_a_day(world, 3 * HOUR)
    assert world.bought == 4
    pass_a_day(world, 2 * HOUR)
    assert world.bought == 4


@pytest.mark.exhaustive
def test_after_two_attempts_for_each_of_many_pods_only_one_is_tried() -> None:
    world = Oddly(after_daemons_larger_than_their_template, pods=MANY, cpu="14")
    pass_a_day(world, HOUR)
    assert 2 * MANY < world.bought <= 2 * MANY + MOST_IN_AN_HOUR - 2


def test_recreated_pods_do_not_reset_the_back_off() -> None:
    world = Oddly(after_daemons_larger_than_their_template)

    def made_anew(w: World) -> None:
        for name in w.waiting():
            del w.cluster.pods[f"default/{name}"]

    world.mishaps = [(number * MINUTE, made_anew) for number in range(4, 60, 4)]
    pass_a_day(world, HOUR)
    assert not world.mishaps
    assert world.bought == MOST_IN_AN_HOUR


def test_pending_pods_have_an_event_with_the_reason() -> None:
    world = Oddly(after_daemons_larger_than_their_template)
    world.live(10 * MINUTE)
    reported = [event for event in world.cluster.events if event.reason == "ProvisioningBackOff"]
    assert {event.name for event in reported} == {"default/web-0"}
    assert reported[0].message.startswith(
        "nodes were bought 2 times for ReplicaSet/web, and none of its pods stayed"
    )


@pytest.mark.exhaustive
def test_once_the_cause_is_gone_one_pod_is_tried_and_the_others_follow() -> None:
    world = Oddly(after_daemons_larger_than_their_template, pods=MANY, cpu="14")
    world.live(5 * MINUTE)
    before = world.bought
    world.scheduler = as_usual
    world.live(15 * MINUTE)
    assert not world.waiting()
    assert world.bought - before <= MANY + 1


def test_after_a_reset_pods_get_nodes_at_once() -> None:
    world = Oddly(after_daemons_larger_than_their_template)
    world.live(15 * MINUTE)
    before = world.bought
    world.scheduler = as_usual
    world.live(3 * MINUTE)
    assert world.bought == before
    reset = {RESET_LAUNCHES: format_time(world.now)}
    world.cluster.nodepools["default"]["metadata"]["annotations"] = reset
    world.live(3 * MINUTE)
    assert not world.waiting()


def test_once_pods_have_run_the_next_one_gets_a_node_at_once() -> None:
    world = Oddly(after_daemons_larger_than_their_template)
    world.live(5 * MINUTE)
    world.scheduler = as_usual
    world.live(15 * MINUTE)
    assert not world.waiting()
    world.remove(["web-0"])
    world.live(5 * MINUTE)
    assert not world.cloud.alive()
    add(world, "web-1")
    world.live(3 * MINUTE)
    assert not world.waiting()


def test_sixty_pods_with_one_node_each_are_not_repeated_attempts() -> None:
    world = Oddly(as_usual, pods=60, cpu="14")
    world.live(6 * MINUTE)
    assert not world.waiting()
    assert world.bought == 60
    assert world.attempts == {1: 60}


@pytest.mark.exhaustive
def test_pods_that_arrive_in_waves_are_not_repeated_attempts() -> None:
    world = Oddly(as_usual, cpu="14")
    for number in range(1, waves := sampled(12, whole=25)):
        later = timedelta(seconds=7 * number)
        world.mishaps.append((later, partial(World.add, name=f"web-{number}", cpu="14")))
    world.live(15 * MINUTE)
    assert not world.waiting()
    assert world.bought == waves
    assert world.attempts == {1: waves}


@pytest.mark.exhaustive
def test_scaling_a_workload_up_and_down_is_not_a_repeated_attempt() -> None:
    world = Oddly(as_usual, cpu="14")
    for number in range(times := sampled(5, whole=8)):
        world.live(6 * MINUTE)
        assert not world.waiting()
        world.remove([f"web-{number}"])
        world.live(5 * MINUTE)
        world.add(f"web-{number + 1}", cpu="14")
        world.cluster.pods[f"default/web-{number + 1}"]["metadata"]["creationTimestamp"] = format_time(
            world.now
        )
    world.live(6 * MINUTE)
    assert world.bought == times + 1
    assert world.attempts == {1: 1}


def test_spot_interruptions_before_pods_run_are_not_repeated_attempts() -> None:
    world = Oddly(as_usual)
    taken: set[str] = set()

    def take(w: World) -> None:
        for instance in w.cloud.alive():
            if instance.id not in taken and len(taken) < 4:
                taken.add(instance.id)
                w.warn(instance.id)
        w.mishaps.append((w.now - builders.NOW + timedelta(seconds=5), take))

    take(world)
    world.live(20 * MINUTE)
    assert len(taken) == 4
    assert not world.waiting()
    assert set(world.attempts) <= {1}


def test_launches_without_capacity_are_not_attempts() -> None:
    world = Oddly(as_usual)
    world.cloud.stock = {"spot *": 0, "on-demand *": 0}
    world.live(5 * MINUTE)
    world.cloud.stock = {}
    world.live(30 * MINUTE)
    assert not world.waiting()
    assert world.attempts == {1: 1}


def test_the_end_of_a_back_off_sends_provisioning_a_hint() -> None:
    world = Oddly(after_daemons_larger_than_their_template)
    while not any(event.reason == "ProvisioningBackOff" for event in world.cluster.events):
        world.live(timedelta(seconds=10))
    second = max(claim.created_at for claim in world.store.claims.values())
    before = world.bought
    world.concerns = ()
    while world.bought == before and world.now - second < 12 * MINUTE:
        world.step()
    assert FIRST_WAIT <= world.now - second <= FIRST_WAIT + 2 * STEP


@pytest.mark.exhaustive
def test_a_node_with_a_useless_replacement_is_not_bought_and_replaced_repeatedly() -> None:
    world = Oddly(where_small_nodes_are_filled)
    add(world, "web-large", cpu="14")
    world.live(3 * MINUTE)
    assert not world.waiting()
    world.remove(["web-large"])
    before = world.bought
    world.live(USELESS_FOR)
    assert world.bought - before <= MOST_USELESS
