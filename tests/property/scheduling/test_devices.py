"""Devices as resources say the same as an allocation of the devices themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.scheduling.devices.allocation import Allocator, Matcher, copies
from nodesmith.decisions.scheduling.devices.resources import DeviceResources, asked_by
from nodesmith.model.apimachinery.quantities import total
from nodesmith.model.karpenter.nodeoverlays import parse_annotated
from nodesmith.model.kubernetes.devices import PodClaim, Stock, parse_claim
from tests.objects.devices import (
    DRIVER,
    GPU,
    claims,
    first_of,
    kind,
    model,
    part,
    parted,
    profile,
    request,
    shared,
)

MODELS = ("a", "b", "c", "d")
STOCKS = st.dictionaries(st.sampled_from(MODELS), st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1)


def selecting(names: set[str]) -> str:
    return " || ".join(map(model, sorted(names)))


def stock_of(drawn: dict[str, tuple[int, int]]) -> Stock:
    """Return devices by model: how many are free, and how many are taken."""
    return tuple((kind(name), free + taken, free) for name, (free, taken) in sorted(drawn.items()))


NAMES = st.sets(st.sampled_from(MODELS), min_size=1)
REQUESTS = st.builds(lambda count, names: request(count, selecting(names)), st.integers(1, 3), NAMES)
EITHER = st.builds(
    lambda one, other: first_of(request(1, selecting(one)), request(1, selecting(other))), NAMES, NAMES
)


def claim_of(*requests: dict[str, Any], alike: tuple[str, ...] = ()) -> PodClaim:
    named = [{**each, "name": f"r{number}"} for number, each in enumerate(requests)]
    return parse_claim(claims(*named, alike=alike)[0])


@given(STOCKS, st.lists(st.one_of(REQUESTS, EITHER), min_size=1, max_size=4))
def test_pods_fit_by_resources_exactly_if_their_devices_can_be_allocated(
    drawn: dict[str, tuple[int, int]], requests: list[dict[str, Any]]
) -> None:
    stock, matcher = stock_of(drawn), Matcher(GPU)
    pods = [claim_of(each) for each in requests]
    asked = [asked_by([each]) for each in pods]
    made = DeviceResources(asked, (each for each, _, _ in stock), matcher)
    possible = not any(unit in made.unknown for each in asked for unit in each.units)
    fits = possible and total([made.requests(each) for each in asked]).fits_in(made.amounts(stock))
    assert not made.exclusive
    assert fits == Allocator(stock, matcher).allocate(pods)


@given(STOCKS, st.lists(REQUESTS, min_size=1, max_size=2))
def test_a_claim_with_constraints_fits_as_often_as_it_can_be_allocated(
    drawn: dict[str, tuple[int, int]], requests: list[dict[str, Any]]
) -> None:
    stock, matcher = stock_of(drawn), Matcher(GPU)
    claim = claim_of(*requests, alike=(f"{DRIVER}/model",))
    asked = asked_by([claim])
    made = DeviceResources([asked], (each for each, _, _ in stock), matcher)
    offered = made.amounts(stock)
    assert offered.of(asked.own_resource) == copies(stock, [claim], matcher)


PROFILES = st.lists(st.sampled_from(["whole", "large", "small"]), min_size=1, max_size=12)
AMOUNTS = st.lists(st.integers(1, 80), min_size=1, max_size=12)


@given(st.integers(1, 3), PROFILES)
def test_partitions_are_allocated_as_long_as_a_device_has_them_and_their_counters(
    gpus: int, profiles: list[str]
) -> None:
    sizes = {
        "whole": (80, 7, 1),
        "large": (40, 3, 2),
        "small": (10, 1, 7),
    }  # memory, slices, how many there are
    stock = tuple((kind, count, count) for kind, count in parse_annotated([parted(gpus)]))
    allocator = Allocator(stock, Matcher(GPU))
    left = [
        {"memory": 80, "slices": 7, **{name: size[2] for name, size in sizes.items()}} for _ in range(gpus)
    ]
    for each in profiles:
        memory, slices, _ = sizes[each]
        able = [gpu for gpu in left if gpu["memory"] >= memory and gpu["slices"] >= slices and gpu[each]]
        assert allocator.allocate([claim_of(request(1, profile(each)))]) == bool(able)
        if able:
            able[0]["memory"] -= memory
            able[0]["slices"] -= slices
            able[0][each] -= 1


@given(st.integers(1, 3), AMOUNTS)
def test_shares_never_take_more_than_a_device_has(devices: int, amounts: list[int]) -> None:
    ((kind, count),) = parse_annotated([{**shared(), "count": devices}])
    allocator, left = Allocator(((kind, count, count),), Matcher(GPU)), [80] * devices
    for amount in amounts:
        is_possible = max(left) >= amount
        assert allocator.allocate([claim_of(part(f"{amount}Gi"))]) == is_possible
        if is_possible:
            left[next(number for number, free in enumerate(left) if free >= amount)] -= amount
