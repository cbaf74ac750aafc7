"""A lower bound on the price, and what it says a unit of each resource is worth.

Items that no bin admits together are packed apart, so their bounds add up. Where a part has one item only, its cheapest
packing is found exactly, by dynamic programming over the count. Else linear programming duality over two resources (the
first two of each vector: cpu and memory) bounds it: for prices a, b >= 0 of a unit of each with
`a * cpu + b * memory <= price` for every bin, any packing of a demand (C, M) costs at least `a * C + b * M`. For a
given a, the largest b allowed is a minimum of lines in a: the bound is concave in a, ternary search finds its maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodesmith.decisions.packing.problem import Bin, Item

_SEARCH_STEPS = 48
_EXACT_COUNT = 2_000


def resource_prices(items: Sequence[Item], bins: Sequence[Bin]) -> tuple[float, float]:
    """Give the prices of a unit of the first and of the second resource that make the bound highest."""
    demand = _demand(items)
    lines = sorted(
        {(float(b.room[0]), float(b.room[1]), b.price) for b in bins if b.room[0] > 0 and b.room[1] > 0}
    )
    if not lines:
        return 0.0, 0.0
    low, high = 0.0, min(price / first for first, _, price in lines)
    for _ in range(_SEARCH_STEPS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if _value(left, demand, lines) < _value(right, demand, lines):
            low = left
        else:
            high = right
    return low, _largest_second(low, lines)


def lower_bound(items: Sequence[Item], bins: Sequence[Bin], prices: tuple[float, float]) -> float:
    """Give a price that no packing of all items into these bins can undercut; 0 where there is nothing to pack.

    `prices` are `resource_prices` of the same bins; those of another demand give a true bound too, only a lower one.
    """
    return sum(_part_bound(part, items, bins, prices) for part in _parts(bins))


def _parts(bins: Sequence[Bin]) -> list[int]:
    """Split the items (as bits) into parts that no bin admits together."""
    parts: list[int] = []
    for admits in sorted({b.admits for b in bins}):
        joined = admits
        for part in parts:
            if part & joined:
                joined |= part
        parts = [part for part in parts if not part & joined] + [joined]
    return parts


def _part_bound(part: int, items: Sequence[Item], bins: Sequence[Bin], prices: tuple[float, float]) -> float:
    members = [item for i, item in enumerate(items) if part >> i & 1 and item.count]
    mine = [b for b in bins if b.admits & part]
    if not members:
        return 0.0
    if len(members) == 1 and members[0].count <= _EXACT_COUNT:
        return _cheapest_cover(members[0], mine)
    demand = _demand(members)
    return max(prices[0] * demand[0] + prices[1] * demand[1], min(b.price for b in mine))


def _cheapest_cover(item: Item, bins: Sequence[Bin]) -> float:
    """Give the price of the cheapest bins that hold all of one item; 0 where none holds it."""
    cheapest: dict[int, float] = {}
    for candidate in bins:
        held = [room // size for room, size in zip(candidate.room, item.size, strict=True) if size]
        capacity = min([item.most, *held])
        if capacity:
            cheapest[capacity] = min(candidate.price, cheapest.get(capacity, candidate.price))
    if not cheapest:
        return 0.0
    cover = [0.0]
    for count in range(1, item.count + 1):
        cover.append(min([price + cover[max(0, count - held)] for held, price in cheapest.items()]))
    return cover[item.count]


def _demand(items: Sequence[Item]) -> tuple[int, int]:
    return sum(i.size[0] * i.count for i in items), sum(i.size[1] * i.count for i in items)


def _value(first: float, demand: tuple[int, int], lines: Sequence[tuple[float, float, float]]) -> float:
    return first * demand[0] + _largest_second(first, lines) * demand[1]


def _largest_second(first: float, lines: Sequence[tuple[float, float, float]]) -> float:
    return max(0.0, min([(price - first * x) / y for x, y, price in lines]))
