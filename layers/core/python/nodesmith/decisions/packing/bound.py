"""A lower bound on the price, and what it says a unit of each resource is worth.

Linear programming duality over two resources (the first two of each vector: cpu and memory). For prices a, b >= 0 of a
unit of each with `a * cpu + b * memory <= price` for every bin, any packing of a demand (C, M) costs at least
`a * C + b * M`. The best such a, b are found on the lower hull: for a given a, the largest b allowed is the minimum of
lines in a, so the bound is concave in a and its maximum is found by ternary search.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodesmith.decisions.packing.problem import Bin, Item

_SEARCH_STEPS = 48


def resource_prices(items: Sequence[Item], bins: Sequence[Bin]) -> tuple[float, float]:
    """Give the prices of a unit of the first and of the second resource that make the bound highest."""
    demand = _demand(items)
    lines = [(float(b.room[0]), float(b.room[1]), b.price) for b in bins if b.room[0] > 0 and b.room[1] > 0]
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
    if not bins or not any(item.count for item in items):
        return 0.0
    demand = _demand(items)
    return max(prices[0] * demand[0] + prices[1] * demand[1], min(b.price for b in bins))


def _demand(items: Sequence[Item]) -> tuple[int, int]:
    return sum(i.size[0] * i.count for i in items), sum(i.size[1] * i.count for i in items)


def _value(first: float, demand: tuple[int, int], lines: Sequence[tuple[float, float, float]]) -> float:
    return first * demand[0] + _largest_second(first, lines) * demand[1]


def _largest_second(first: float, lines: Sequence[tuple[float, float, float]]) -> float:
    return max(0.0, min([(price - first * x) / y for x, y, price in lines]))
