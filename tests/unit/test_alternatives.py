"""Deciding several times: what is bought for, and what is not bought for again."""

from __future__ import annotations

from nodesmith.decisions.provisioning.purchase.order import Purchase
from nodesmith.decisions.provisioning.search.alternatives import best
from nodesmith.decisions.scheduling.choices import Choices
from nodesmith.decisions.scheduling.demands import Assignment, Demand
from nodesmith.decisions.scheduling.offerings.unavailable import UnavailableDomains
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from tests.builders import ZONES, pods, shape

_OFFERINGS = 100
WEB = shape()


def bought_for(count: int, *, zones: int) -> list[tuple[str, bool]]:
    """Decide for pods that may go to any of some zones; give the zones bought for, and whether quickly."""
    found: list[tuple[str, bool]] = []

    def assign(choices: Choices, _: UnavailableDomains) -> Assignment:
        zone = ZONES[choices.pick(("zone", WEB), 2) % zones]
        return Assignment(demands=[Demand(WEB, tuple(pods(WEB, count)), FrozenMap({ZONE: zone}))])

    def buy(assignment: Assignment, _: Choices, quick: bool) -> Purchase:
        found.append((assignment.demands[0].pins[ZONE], quick))
        return Purchase()

    best(count, _OFFERINGS, assign, buy, lambda _: -1.0, lambda _: 0)
    return found


def test_an_assignment_that_comes_up_again_is_not_bought_for_again() -> None:
    assert bought_for(10, zones=1) == [(ZONES[0], False)]


def test_another_one_is_bought_for() -> None:
    assert bought_for(10, zones=2) == [(ZONES[0], False), (ZONES[1], False)]


def test_of_more_pods_others_are_bought_for_quickly_and_held_against_the_first_bought_so() -> None:
    assert bought_for(20, zones=2) == [(ZONES[0], False), (ZONES[0], True), (ZONES[1], True)]


def test_of_more_pods_nothing_is_bought_quickly_where_there_is_nothing_to_hold_it_against() -> None:
    assert bought_for(20, zones=1) == [(ZONES[0], False)]
