"""Against exhaustive search: small problems are packed at the lowest price, and no bound is above it."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.packing import Bin, Item, Packing, lower_bound, pack
from nodesmith.decisions.packing.columngeneration.columns import all_patterns, solve_all_patterns
from nodesmith.decisions.packing.columngeneration.solve import cheapest_cover, pack_by_columns
from nodesmith.decisions.packing.exact import Cheapest, exact, number_of_patterns
from nodesmith.decisions.packing.greedy import fill_greedily
from nodesmith.decisions.packing.problem import PartialPlan
from nodesmith.decisions.packing.reduction import usable
from tests.samples import sampled

AXES = 3
Counts = tuple[int, ...]


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[list[Item], list[Bin]]:
    """Return up to eight items of up to four kinds and six bins, one of which holds any single item."""
    sizes = st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9))
    items: list[Item] = []
    for _ in range(draw(st.integers(1, 4))):
        capacity = 8 - sum(item.count for item in items)
        if capacity > 0:
            groups = draw(st.sampled_from([(), (), (0,), (1,), (0, 1)]))
            caps = draw(st.sampled_from([(), (), ((0, 1),), ((1, 2),)]))
            items.append(
                Item(
                    draw(sizes), draw(st.integers(1, min(4, capacity))), draw(st.integers(1, 4)), groups, caps
                )
            )
    everything = (1 << len(items)) - 1
    capacities = st.tuples(*[st.integers(4, 30)] * AXES)
    bins = [Bin("all", (40, 40, 40), draw(st.integers(5, 60)) / 10, everything)]
    for number in range(draw(st.integers(0, 5))):
        admits = draw(st.sampled_from([everything, everything, draw(st.integers(1, everything))]))
        bins.append(Bin(f"bin-{number}", draw(capacities), draw(st.integers(1, 40)) / 10, admits))
    return items, bins


def may_share(items: list[Item], counts: Counts) -> bool:
    return all(
        count <= item.per_node
        and all(
            sum(n for n, other in zip(counts, items, strict=True) if g in other.groups) <= most
            for g, most in item.caps
        )
        for count, item in zip(counts, items, strict=True)
        if count
    )


def fits(items: list[Item], counts: Counts, one: Bin) -> bool:
    return all(
        sum(n * item.size[axis] for n, item in zip(counts, items, strict=True)) <= one.capacity[axis]
        for axis in range(AXES)
    ) and all(one.admits >> i & 1 for i, n in enumerate(counts) if n)


def optimum(items: list[Item], bins: list[Bin]) -> float:
    """Return the lowest price by exhaustive recursion, deliberately unlike the code under test."""

    @cache
    def of_one(counts: Counts) -> float:
        return min(
            (b.price for b in bins if may_share(items, counts) and fits(items, counts, b)), default=inf
        )

    @cache
    def best(left: Counts) -> float:
        if not any(left):
            return 0.0
        parts = (part for part in product(*(range(n + 1) for n in left)) if any(part))
        return min(
            of_one(part) + best(tuple(have - n for have, n in zip(left, part, strict=True)))
            for part in parts
            if of_one(part) < inf
        )

    return best(tuple(item.count for item in items))


def price_of(packing: Packing) -> float:
    assert not any(packing.left)
    return packing.price


@settings(max_examples=sampled(60, whole=150))
@given(problem=small_problems())
def test_a_small_problem_is_packed_optimally_and_the_bound_is_valid(
    problem: tuple[list[Item], list[Bin]],
) -> None:
    items, bins = problem
    best, packing = optimum(items, bins), pack(items, bins)

    assert abs(price_of(packing) - best) <= 0.005 * best + 1e-9
    assert packing.bound <= best + 1e-9


@settings(max_examples=sampled(100, whole=300))
@given(problem=small_problems())
def test_no_lower_bound_is_above_the_optimum(
    problem: tuple[list[Item], list[Bin]],
) -> None:
    items, bins = problem

    assert lower_bound(items, bins) <= optimum(items, bins) + 1e-9


@settings(max_examples=sampled(100, whole=300))
@given(problem=small_problems())
def test_no_lower_bound_by_whole_units_is_above_the_optimum(problem: tuple[list[Item], list[Bin]]) -> None:
    items, bins = problem

    assert lower_bound(items, bins, few_kinds=0) <= optimum(items, bins) + 1e-9


@settings(max_examples=sampled(50, whole=100))
@given(problem=small_problems())
def test_unusable_capacity_does_not_affect_the_optimum(problem: tuple[list[Item], list[Bin]]) -> None:
    items, bins = problem
    used = usable(items, bins)

    assert optimum(items, used) == optimum(items, bins)
    assert usable(items, used) == used


@settings(max_examples=sampled(40, whole=60))
@given(problem=small_problems())
def test_no_bound_of_column_generation_is_above_the_optimum(
    problem: tuple[list[Item], list[Bin]],
) -> None:
    items, bins = problem
    best = optimum(items, bins)
    first = PartialPlan(items, {})
    fill_greedily(first, bins, (0.1, 0.1), 10**6)

    _, bound = solve_all_patterns(items, bins, all_patterns(items, bins), [])
    partial = PartialPlan(items, {})
    proved = pack_by_columns(partial, bins, first, (0.1, 0.1, 0.0), 10**6)

    assert bound <= best + 1e-6
    assert min(proved, first.price) <= best + 1e-6
    assert any(partial.left) or partial.price >= best - 1e-9


@settings(max_examples=sampled(25, whole=50))
@given(problem=small_problems())
def test_an_exact_packing_costs_as_much_as_the_optimum(problem: tuple[list[Item], list[Bin]]) -> None:
    items, bins = problem

    chosen = exact(Cheapest(items, bins), tuple(item.count for item in items))

    assert chosen is not None
    assert [sum(counts) for counts in zip(*(held for _, held in chosen), strict=True)] == [
        item.count for item in items
    ]
    assert all(may_share(items, held) and fits(items, held, bin_) for bin_, held in chosen)
    assert abs(sum(bin_.price for bin_, _ in chosen) - optimum(items, bins)) < 1e-6


@settings(max_examples=sampled(20, whole=30))
@given(problem=small_problems())
def test_there_are_no_more_patterns_than_their_upper_bound(problem: tuple[list[Item], list[Bin]]) -> None:
    items, _ = problem
    room = Bin("room", (99, 99, 99), 1.0, (1 << len(items)) - 1)
    free = [Item(item.size, item.count, item.per_node) for item in items]

    assert number_of_patterns(items) >= len(all_patterns(items, [room]).price) + 1
    assert number_of_patterns(free) == len(all_patterns(free, [room]).price) + 1


@settings(max_examples=sampled(40, whole=60))
@given(problem=small_problems())
def test_the_quick_plan_is_never_cheaper_than_the_optimum(
    problem: tuple[list[Item], list[Bin]],
) -> None:
    items, bins = problem
    first = PartialPlan(items, {})
    fill_greedily(first, bins, (0.1, 0.1), 10**6)

    assert not any(first.left)
    assert first.price >= optimum(items, bins) - 1e-9


@settings(max_examples=sampled(50, whole=100))
@given(problem=small_problems())
def test_the_cheapest_cover_over_all_patterns_costs_as_much_as_the_optimum(
    problem: tuple[list[Item], list[Bin]],
) -> None:
    items, bins = problem
    known = all_patterns(items, bins)
    offered = [known.column(n).counts for n in range(len(known.price))]
    counts = [item.count for item in items]

    cover = cheapest_cover(counts, offered, known.price.tolist())

    assert cover is not None
    served = [sum(offered[place][i] * n for place, n in cover.items()) for i in range(len(items))]
    assert all(have >= wanted for have, wanted in zip(served, counts, strict=True))
    assert abs(sum(known.price[place] * n for place, n in cover.items()) - optimum(items, bins)) < 1e-6


def test_items_that_no_pattern_holds_have_no_cover() -> None:
    assert cheapest_cover([2, 1], [(1, 0)], [1.0]) is None
    assert cheapest_cover([3, 0], [(2, 0)], [1.0]) == {0: 2}
