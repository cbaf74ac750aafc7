"""A lower bound on the price, and what it says a unit of each resource is worth.

Items that no bin admits together are packed apart, so their bounds add up. Where a part has one item only, its cheapest
packing is found exactly, by dynamic programming over the count. Else linear programming duality bounds it: at prices
of a unit of each measure (`measures`) at which no bin holds more than its own price is worth, any packing costs at
least what all its items are worth. The prices are those that make this most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import fsum
from operator import mul
from statistics import fmean

from nodesmith.decisions.packing.measures import Measure, measures
from nodesmith.decisions.packing.problem import Bin, Item
from nodesmith.decisions.packing.simplex import dual_prices

_EXACT_COUNT = 2_000
_SHORTAGES = ((1.5, 1.0), (1.0, 1.5))
_AVERAGES = 2


def resource_prices(items: Sequence[Item], bins: Sequence[Bin]) -> tuple[float, ...]:
    """Return the prices of a unit of each resource at which the items are worth most and no bin's room is a bargain."""
    return _prices(_demand(items), bins)


def even_prices(items: Sequence[Item], bins: Sequence[Bin]) -> tuple[float, ...]:
    """Return prices of a unit of each resource, between those that a shortage of cpu and one of memory would make.

    Bins too small for a few average items are not asked: what they hold at a low price is soon gone.
    """
    demand = _demand(items)
    number = sum(i.count for i in items) / _AVERAGES
    asked = [b for b in bins if all(b.capacity[axis] * number >= demand[axis] for axis in (0, 1))] or bins
    found = [
        _prices([amount * factor for amount, factor in zip_longest(demand, factors, fillvalue=1.0)], asked)
        for factors in _SHORTAGES
    ]
    return tuple(map(fmean, zip(*found, strict=True)))


def _demand(items: Sequence[Item]) -> list[int]:
    return [sum(i.size[axis] * i.count for i in items) for axis in range(len(items[0].size))]


def _prices(demand: Sequence[float], bins: Sequence[Bin]) -> tuple[float, ...]:
    offers = dict.fromkeys((b.capacity, b.price) for b in bins)
    sold = [
        axis for axis, amount in enumerate(demand) if amount and any(capacity[axis] for capacity, _ in offers)
    ]
    capacities = [[capacity[axis] for axis in sold] for capacity, _ in offers]
    found = dual_prices([demand[axis] for axis in sold], capacities, [price for _, price in offers])
    prices = dict(zip(sold, found, strict=True))
    return tuple(prices.get(axis, 0.0) for axis in range(len(demand)))


def lower_bound(items: Sequence[Item], bins: Sequence[Bin]) -> float:
    """Return a price that no packing of all items into these bins can undercut; 0 where there is nothing to pack."""
    return fsum(_part_bound(part, items, bins) for part in _parts(bins))


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


def _part_bound(part: int, items: Sequence[Item], bins: Sequence[Bin]) -> float:
    members = [number for number, item in enumerate(items) if item.count and part >> number & 1]
    mine = [b for b in bins if b.admits & part]
    if not members:
        return 0.0
    if len(members) == 1 and items[members[0]].count <= _EXACT_COUNT:
        return _cheapest_cover(items[members[0]], mine)
    free = [place for place, b in enumerate(mine) if b.price <= 0]
    known = [m for m in measures(items, members, mine) if not any(m.capacity[place] for place in free)]
    return max(_most_worth(known, mine), min(b.price for b in mine))


def _most_worth(known: Sequence[Measure], bins: Sequence[Bin]) -> float:
    """Return what all items are worth at the best prices of these measures."""
    cheapest: dict[tuple[float, ...], float] = {}
    for candidate, *capacity in zip(bins, *(m.capacity for m in known), strict=True):
        if any(capacity):
            same = tuple(capacity)
            cheapest[same] = min(candidate.price, cheapest.get(same, candidate.price))
    demand = [m.demand for m in known]
    found = dual_prices(demand, list(cheapest), list(cheapest.values()))
    worth = [(price, fsum(map(mul, found, capacity))) for capacity, price in cheapest.items()]
    feasible: float = min([1.0, *(price / most for price, most in worth if most > price)])
    total = fsum(map(mul, found, demand))
    return feasible * total


def _cheapest_cover(item: Item, bins: Sequence[Bin]) -> float:
    """Return the price of the cheapest bins that hold all of one item; 0 where none holds it."""
    cheapest: dict[int, float] = {}
    for candidate in bins:
        held = [
            capacity // size for capacity, size in zip(candidate.capacity, item.size, strict=True) if size
        ]
        per_node = min([item.most, *held])
        if per_node:
            cheapest[per_node] = min(candidate.price, cheapest.get(per_node, candidate.price))
    if not cheapest:
        return 0.0
    cover = [0.0]
    for count in range(1, item.count + 1):
        cover.append(min([price + cover[max(0, count - held)] for held, price in cheapest.items()]))
    return cover[item.count]
