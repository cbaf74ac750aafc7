"""Services are away: a sample of the combinations of which `python -m tests.benchmarks chaos` runs thousands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith_local.chaos.faults import HALVES, Fault, FaultKind, Service
from tests import builders
from tests.samples import sampled
from tests.scenarios import secondcluster
from tests.scenarios.chaos import (
    ChaosWorld,
    Combination,
    before,
    oddities,
    outcome,
    pairs_of_faults,
    single_faults,
)
from tests.smallworld.branches import copied

GOAL_SECONDS = 120
AT_ONCE = [
    Combination((Fault(Service.DYNAMODB, FaultKind.THROTTLED, 30),), "interruption", 0),
    Combination((Fault(Service.DYNAMODB, FaultKind.ERRORS, 3600),), "upgrade", 150),
    Combination((Fault(Service.API_SERVER, FaultKind.ERRORS, 3600),), "scale-up", 25),
    Combination((), "scale-up", 25, "a snapshot of an hour ago", 3600),
    Combination((Fault(Service.EC2, FaultKind.LATE, 300),), "scale-up", 0),
    Combination((Fault(Service.EC2, FaultKind.ERRORS, 3600),), "consolidation", 0),
    Combination((Fault(Service.EC2, FaultKind.THROTTLED, 300),), "upgrade", 0),
    Combination((Fault(Service.S3, FaultKind.ERRORS, 3600),), "consolidation", 60),
    Combination((), "upgrade", 0, "prices of zero", 30),
    Combination(
        (Fault(Service.S3, FaultKind.LATE, 30), Fault(Service.EC2, FaultKind.THROTTLED, 3600)), "scale-up", 0
    ),
]
"""Combinations that have failed, and one that would if a launch were not idempotent."""
SAMPLE = [
    *AT_ONCE,
    *list(single_faults())[5 :: sampled(307, whole=11)],
    *list(oddities())[5 :: sampled(101, whole=3)],
    *pairs_of_faults(sampled(2, whole=200)),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("combination", SAMPLE, ids=str)
def test_nothing_is_left_over_after_services_were_away_and_all_recovers_within_two_minutes(
    combination: Combination,
) -> None:
    found = outcome(combination)
    assert not found.broken
    assert found.beyond <= GOAL_SECONDS


@pytest.mark.parametrize(
    ("service", "callers"),
    [
        (Service.DYNAMODB, frozenset[str]()),
        (Service.S3, frozenset[str]()),
        (Service.STS, frozenset[str]()),
        (Service.DYNAMODB, frozenset({"provisioning", "disruption"})),
    ],
)
def test_nothing_is_bought_while_a_service_that_a_purchase_needs_is_away(
    service: Service, callers: frozenset[str]
) -> None:
    world = copied(before("scale-up", 0).world)
    there = len(world.cloud.instances)
    world.begin([Fault(service, FaultKind.ERRORS, 120, callers)])
    world.live(timedelta(seconds=115))
    assert len(world.cloud.instances) == there
    assert sum(world.met.values()) > 3
    world.live(timedelta(minutes=3))
    assert len(world.cloud.instances) == there + 6


def test_a_purchase_that_half_of_the_functions_cannot_make_is_made_by_the_other_half() -> None:
    world = copied(before("scale-up", 0).world)
    (cut,) = (half for half in HALVES if "provisioning" not in half)
    world.begin([Fault(Service.EC2, FaultKind.PARTITIONED, 3600, cut)])
    there = len(world.cloud.instances)
    world.live(timedelta(minutes=2))
    assert len(world.cloud.instances) == there + 6


def _is_stolen(world: ChaosWorld) -> None:
    (resource, *_) = world.cloud.of_others.values()
    world.cloud.remove(resource)


def _goes_astray(world: ChaosWorld) -> None:
    world.notices.keep(builders.CLUSTER, "1", builders.spot_warning(secondcluster.WARNED), builders.ACCOUNT)


def _starves(world: ChaosWorld) -> None:
    later = world.now + timedelta(minutes=5)
    world.store.budget[0] = replace(world.store.budget[0], calls=0.0, at=later)
    world.second.ask(later)


@pytest.mark.parametrize(
    ("harms", "reported"),
    [
        (
            lambda world: world.cloud.terminate([secondcluster.WARNED]),
            "the second cluster's instances changed",
        ),
        (
            lambda world: world.cloud.tag(secondcluster.WARNED, {"a": "b"}),
            "the second cluster's tags changed",
        ),
        (_is_stolen, "the second cluster's resources changed"),
        (lambda world: world.notices.kept[secondcluster.NAME].clear(), "the second cluster's notice changed"),
        (_goes_astray, "its notice 1 went astray"),
        (_starves, "the second cluster waited 0:05:00 for a call"),
    ],
)
def test_harm_to_a_second_cluster_of_the_account_is_noticed(
    harms: Callable[[ChaosWorld], None], reported: str
) -> None:
    world = copied(before("drain", 0).world)
    world.second.served_at = world.second.asked_at = world.now
    world.begin([])
    world.live(timedelta(minutes=1))
    assert world.harm_to_others() == []
    harms(world)
    assert reported in world.harm_to_others()


def test_a_lost_warning_for_a_second_cluster_is_noticed() -> None:
    world = copied(before("drain", 0).world)
    assert world.harm_to_others() == ["the second cluster was not warned", "the second cluster was not woken"]
