"""The lower bound against plans without waste: nodes are drawn first, and items are cut to fill them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.decisions.packing import Bin, Item, lower_bound
from tests.samples import sampled

AXES = 3
Pattern = list[tuple[Item, int]]


@st.composite
def cut(draw: st.DrawFn, capacity: Sequence[int], group: int) -> Pattern:
    """Cut a capacity into items that fill it, some of which repel others of their group."""
    left = list(capacity)
    pattern: Pattern = []
    for _ in range(draw(st.integers(0, 8))):
        size = tuple(draw(st.integers(0, have)) for have in left)
        count = draw(st.integers(1, 3))
        if any(size) and all(count * each <= have for each, have in zip(size, left, strict=True)):
            pattern.append((Item(size, count, draw(st.sampled_from([count, 50]))), count))
            left = [have - count * each for have, each in zip(left, size, strict=True)]
    if any(left):
        pattern.append((Item(tuple(left), 1, 1), 1))
    if draw(st.booleans()):
        together = sum(count for _, count in pattern)
        caps = draw(st.integers(together, together + 2))
        pattern = [
            (Item(i.size, i.count, i.per_node, (group,), ((group, caps),)), count) for i, count in pattern
        ]
    return pattern


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Item], list[Bin], float]:
    """Return items, bins, and the price of a plan that holds all items in some of these bins."""
    capacities = [draw(st.tuples(*[st.integers(1, 60)] * AXES)) for _ in range(draw(st.integers(1, 4)))]
    prices = [draw(st.integers(0, 40)) / 10 for _ in capacities]
    items: list[Item] = []
    admits = [0] * len(capacities)
    price = 0.0
    for group in range(draw(st.integers(1, 9))):
        number = draw(st.integers(0, len(capacities) - 1))
        pattern = draw(cut(capacities[number], draw(st.sampled_from([0, group]))))
        repeats = draw(st.integers(1, 4))
        for item, count in pattern:
            admits[number] |= 1 << len(items)
            items.append(Item(item.size, count * repeats, item.per_node, item.groups, item.caps))
        price += repeats * prices[number]
    extra = [draw(st.integers(0, (1 << len(items)) - 1)) for _ in capacities]
    bins = [
        Bin(f"bin-{n}", capacity, cost, mask | more)
        for n, (capacity, cost, mask, more) in enumerate(zip(capacities, prices, admits, extra, strict=True))
    ]
    return items, bins, price


@settings(max_examples=sampled(100, whole=300))
@given(plan=plans())
def test_no_bound_is_above_the_price_of_a_plan(plan: tuple[list[Item], list[Bin], float]) -> None:
    items, bins, price = plan

    assert lower_bound(items, bins) <= price + 1e-9


@settings(max_examples=sampled(50, whole=100))
@given(plan=plans(), repeats=st.integers(8, 12))
def test_no_bound_is_above_the_price_of_a_plan_for_very_many_kinds(
    plan: tuple[list[Item], list[Bin], float], repeats: int
) -> None:
    """The same plan several times: items that are listed separately are separate kinds."""
    items, bins, price = plan
    several = [item for item in items for _ in range(repeats)]
    admits = [
        sum(((1 << repeats) - 1) << n * repeats for n in range(len(items)) if b.admits >> n & 1) for b in bins
    ]
    apart = [
        Bin(f"{b.key}", b.capacity, b.price, mask, b.limit, b.cost)
        for b, mask in zip(bins, admits, strict=True)
    ]

    assert lower_bound(several, apart) <= repeats * price + 1e-9
