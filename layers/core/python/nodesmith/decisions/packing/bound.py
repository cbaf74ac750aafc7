"""A lower bound on the price of any packing, and the dual price of a unit of each resource.

Items that no bin admits together are packed separately, so their bounds add up. If a part has a single item, dynamic
programming over the count finds its cheapest packing exactly. Otherwise the bound follows from linear programming
duality. Consider prices per unit of each measure (see `measures`) at which no bin holds more than its own price is
worth: any packing then costs at least the worth of all its items. The prices chosen maximize that worth.
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
    """Return dual prices per unit of each resource.

    They maximize the worth of all items while the capacity of no bin is worth more than the bin's price.
    """
    return _prices(_demand(items), bins)


def even_prices(items: Sequence[Item], bins: Sequence[Bin]) -> tuple[float, ...]:
    """Return prices per unit of each resource: the mean of the dual prices if cpu were scarce and if memory were.

    Bins that hold less than about two average items are ignored, since a low price for so little capacity says nothing
    about the rest of the demand.
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
    """Return a price that no packing of all items into these bins can undercut; 0 if there is nothing to pack."""
    return fsum(_part_bound(part, items, bins) for part in _parts(bins))


def _parts(bins: Sequence[Bin]) -> list[int]:
    """Split the items (as bit masks) into parts such that no bin admits items of two parts."""
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
    """Return the worth of all items at the best dual prices of these measures."""
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
    """Return the price of the cheapest bins that hold all of one item; 0 if no bin holds it."""
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
