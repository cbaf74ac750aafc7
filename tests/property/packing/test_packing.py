"""For every packing: no node or limit is exceeded, no item that fits is left, and the order of bins does not matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.packing import (
    Bin,
    Item,
    Node,
    Packing,
    lower_bound,
    pack,
    undominated,
)

AXES = 3


@dataclass(frozen=True, slots=True)
class Problem:
    items: tuple[Item, ...]
    bins: tuple[Bin, ...]
    limits: Mapping[int, tuple[int, ...]]


def vectors(largest: int, smallest: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(smallest, largest)] * AXES)


GROUPS = st.integers(0, 2)
ITEMS = st.builds(
    Item,
    vectors(12),
    st.integers(1, 40),
    st.integers(1, 40),
    st.frozensets(GROUPS, max_size=2).map(lambda groups: tuple(sorted(groups))),
    st.dictionaries(GROUPS, st.integers(0, 5), max_size=2).map(lambda caps: tuple(sorted(caps.items()))),
)


@st.composite
def problems(draw: st.DrawFn, *, limits: bool = True) -> Problem:
    items = draw(st.lists(ITEMS, min_size=1, max_size=5))
    remaining = {n: draw(st.tuples(st.integers(-2, 60), st.integers(0, 12))) for n in range(2) if limits}
    bins = []
    for number in range(draw(st.integers(1, 10))):
        limit = draw(st.sampled_from([-1, *remaining]))
        cost = (draw(st.integers(0, 16)), 1) if limit >= 0 else ()
        price = draw(st.floats(0.01, 10, allow_nan=False))
        admits = draw(st.integers(0, 2 ** len(items) - 1))
        bins.append(Bin(f"bin-{number}", draw(vectors(40)), price, admits, limit, cost))
    return Problem(tuple(items), tuple(bins), remaining)


def packed(problem: Problem) -> Packing:
    return pack(problem.items, problem.bins, problem.limits)


def fits(item: Item, number: int, bin: Bin, times: int = 1) -> bool:  # noqa: A002 (the packer's own term)
    admitted = bool(bin.admits >> number & 1) and all(
        most for group, most in item.caps if group in item.groups
    )
    return admitted and all(
        size * times <= capacity for size, capacity in zip(item.size, bin.capacity, strict=True)
    )


def held(node: Node, items: tuple[Item, ...], axis: int) -> int:
    return sum(count * items[number].size[axis] for number, count in node.holds)


@given(problem=problems())
def test_every_node_respects_its_capacity_and_admits_its_items(problem: Problem) -> None:
    packing = packed(problem)

    for node in packing.nodes:
        assert node.repeats > 0
        assert node.holds
        assert all(held(node, problem.items, axis) <= node.bin.capacity[axis] for axis in range(AXES))
        for number, count in node.holds:
            assert 0 < count <= problem.items[number].per_node
            assert node.bin.admits >> number & 1


@given(problem=problems())
def test_every_node_respects_the_caps_of_its_items(problem: Problem) -> None:
    packing = packed(problem)

    for node in packing.nodes:
        on_it = [(problem.items[number], count) for number, count in node.holds]
        for item, _ in on_it:
            for group, most in item.caps:
                assert sum(count for other, count in on_it if group in other.groups) <= most


@given(problem=problems())
def test_packed_and_left_items_add_up(problem: Problem) -> None:
    packing = packed(problem)

    for number, item in enumerate(problem.items):
        assert packing.left[number] >= 0
        assert (
            sum(n.repeats * dict(n.holds).get(number, 0) for n in packing.nodes) + packing.left[number]
            == item.count
        )


@given(problem=problems())
def test_no_limit_is_exceeded_and_the_remaining_limits_are_exact(problem: Problem) -> None:
    packing = packed(problem)

    for limit, amounts in problem.limits.items():
        spent = [0, 0]
        for node in packing.nodes:
            if node.bin.limit == limit:
                spent = [s + node.repeats * c for s, c in zip(spent, node.bin.cost, strict=True)]
        assert list(packing.limits[limit]) == [have - s for have, s in zip(amounts, spent, strict=True)]
        assert all(s == 0 or s <= have for s, have in zip(spent, amounts, strict=True))


@given(problem=problems(limits=False))
def test_without_limits_every_item_that_fits_some_bin_is_packed(problem: Problem) -> None:
    packing = packed(problem)

    for number, item in enumerate(problem.items):
        somewhere = any(fits(item, number, b) for b in problem.bins)
        assert packing.left[number] == (0 if somewhere else item.count)


@given(problem=problems(limits=False))
def test_no_packing_is_cheaper_than_the_bound(problem: Problem) -> None:
    packing = packed(problem)
    assert packing.bound <= packing.price + 1e-9


@given(price=st.floats(0.01, 10), size=vectors(12, 1), nodes=st.integers(1, 5))
def test_the_bound_equals_the_price_of_full_nodes(price: float, size: tuple[int, ...], nodes: int) -> None:
    """If one kind of pod fills one kind of node in cpu and memory, nothing can be saved."""
    full = tuple(10 * s for s in size)
    item, only = Item(size, 10 * nodes, 10), Bin("only", full, price, 1)

    bound = lower_bound([item], [only])

    assert abs(bound - nodes * price) < 1e-6 * nodes * price


@given(problem=problems(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_bins_does_not_change_the_packing(problem: Problem, order: Random) -> None:
    shuffled = list(problem.bins)
    order.shuffle(shuffled)

    assert packed(replace(problem, bins=tuple(shuffled))) == packed(problem)


@given(problem=problems(limits=False))
def test_a_bin_is_dropped_only_if_another_is_as_good(problem: Problem) -> None:
    kept = undominated(problem.bins)

    assert set(kept) <= set(problem.bins)
    for out in set(problem.bins) - set(kept):
        assert any(
            k.price <= out.price
            and not out.admits & ~k.admits
            and all(mine <= theirs for mine, theirs in zip(out.capacity, k.capacity, strict=True))
            for k in kept
        )


@settings(max_examples=20)
@given(counts=st.lists(st.integers(1, 10_000), min_size=1, max_size=3))
def test_the_work_does_not_grow_with_the_number_of_equal_items(counts: list[int]) -> None:
    items = tuple(Item((n + 1, 2, 1), count, count) for n, count in enumerate(counts))
    bins = tuple(Bin(f"b{n}", (4 * 2**n, 16 * 2**n, 30), 0.1 * 2**n, 2 ** len(items) - 1) for n in range(4))

    packing = packed(Problem(items, bins, {}))

    assert not any(packing.left)
    assert packing.steps <= 500_000
