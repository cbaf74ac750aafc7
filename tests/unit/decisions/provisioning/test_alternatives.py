"""Repeated decisions: which assignments are bought for, and which are not bought for again."""

from __future__ import annotations

from nodesmith.decisions.provisioning.alternatives import Bounds, best
from nodesmith.decisions.provisioning.purchase.order import Purchase
from nodesmith.decisions.scheduling.demands import Assignment, Choices, Demand, UnavailableDomains
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from tests.builders import ZONES, pods, shape

_OFFERINGS = 100
WEB = shape()


def bought_for(count: int, *, zones: int) -> list[tuple[str, bool]]:
    """Decide for pods that may go to any of some zones; return the zones bought for, and whether quickly."""
    found: list[tuple[str, bool]] = []

    def assign(choices: Choices, _: UnavailableDomains) -> Assignment:
        zone = ZONES[choices.pick(("zone", WEB), 2) % zones]
        return Assignment(demands=[Demand(WEB, tuple(pods(WEB, count)), FrozenMap({ZONE: zone}))])

    def buy(assignment: Assignment, _: Choices, quick: bool) -> Purchase:
        found.append((assignment.demands[0].pins[ZONE], quick))
        return Purchase()

    best(count, _OFFERINGS, assign, buy, lambda _: Bounds(-1.0, -1.0), lambda _: 0)
    return found


def test_a_repeated_assignment_is_not_bought_for_again() -> None:
    assert bought_for(10, zones=1) == [(ZONES[0], False)]


def test_a_new_assignment_is_bought_for() -> None:
    assert bought_for(10, zones=2) == [(ZONES[0], False), (ZONES[1], False)]


def test_with_more_pods_alternatives_are_bought_quickly_and_compared_with_a_quick_first_purchase() -> None:
    assert bought_for(20, zones=2) == [(ZONES[0], False), (ZONES[0], True), (ZONES[1], True)]


def test_with_more_pods_nothing_is_bought_quickly_if_there_is_nothing_to_compare() -> None:
    assert bought_for(20, zones=1) == [(ZONES[0], False)]


def test_what_is_demanded_in_a_domain_counts_towards_what_it_has_for_pods() -> None:
    web = shape(app="web")
    pins = FrozenMap({ZONE: ZONES[0]})
    wanted = Demand(web, tuple(pods(web, 5)), pins=pins)
    refused = Demand(web, tuple(pods(web, 2)), pins=pins)
    unavailable = UnavailableDomains()
    assert unavailable.is_empty
    assert unavailable.most(web, web, pins) is None
    assert unavailable.learn([wanted], [refused])
    assert not unavailable.is_empty
    assert unavailable.most(web, web, pins) == 3
    assert unavailable.most(web, web, pins, [Demand(web, tuple(pods(web, 2)), pins=pins)]) == 1
    assert unavailable.most(web, web, pins, [wanted]) == 0
    assert unavailable.most(web, web, FrozenMap({ZONE: ZONES[1]})) is None


def test_only_pods_of_a_domain_are_excluded_for_good() -> None:
    web = shape(app="web")
    anywhere = Demand(web, tuple(pods(web, 1, prefix="anywhere")))
    pinned = Demand(web, tuple(pods(web, 1, prefix="pinned")), pins=FrozenMap({ZONE: ZONES[0]}))
    unavailable = UnavailableDomains()
    assert not unavailable.learn([anywhere], [anywhere], for_good=True)
    assert unavailable.learn([anywhere, pinned], [anywhere, pinned], for_good=True)
    assert unavailable.pods == {pod.key for pod in pinned.pods}
    assert unavailable.is_empty
