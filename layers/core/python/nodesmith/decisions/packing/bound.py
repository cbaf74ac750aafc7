"""A lower bound on the price of any packing, and the dual price of a unit of each resource.

Items that no bin admits together are packed separately, so their bounds add up. If a part has a single item, dynamic
programming over the count finds its cheapest packing exactly. Otherwise the bound follows from linear programming
duality. A measure is a size of each item such that no bin holds more than a known total. Consider prices per unit of
each measure at which no bin holds more than its own price is worth: any packing then costs at least the worth of all
its items. The prices chosen maximize that worth; the simplex method finds them without a library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from math import fsum, inf
from operator import le, mul
from statistics import fmean
from typing import NamedTuple

from nodesmith.decisions.packing.exact import number_of_patterns
from nodesmith.decisions.packing.problem import Bin, Item, Limits
from nodesmith.decisions.packing.reduction import filled, undominated, usable
from nodesmith.decisions.packing.simplex import dual_prices, scarcity

FEW_KINDS = 40
"""the most kinds of items for which patterns are part of bounds, and plans are optimized as a whole"""
_EXACT_COUNT = 2_000
_MOST_LISTED = 20_000
_SHORTAGES = ((1.5, 1.0), (1.0, 1.5))
_AVERAGES = 2
_COUNTED_KINDS = 12
_MOST_THRESHOLDS, _MOST_MASKS = 6, 4
_MOST_GROUPS = 8
_MAIN_AXES = 2  # cpu and memory
_LOOKED_AT, _MOST_SIZES, _PARTS, _UNITS = 12, 8, (1, 2, 3), 2
Members = tuple[int, ...]
Unit = tuple[int, int]
"""A size and the number of parts that it is divided into; each part is one unit."""
_Coefficients = tuple[float, ...]


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
    large = [b for b in bins if all(b.capacity[axis] * number >= demand[axis] for axis in (0, 1))] or bins
    by_shortage = [
        _prices([amount * factor for amount, factor in zip_longest(demand, factors, fillvalue=1.0)], large)
        for factors in _SHORTAGES
    ]
    return tuple(map(fmean, zip(*by_shortage, strict=True)))


def _demand(items: Sequence[Item]) -> list[int]:
    return [sum(i.size[axis] * i.count for i in items) for axis in range(len(items[0].size))]


def _prices(demand: Sequence[float], bins: Sequence[Bin]) -> tuple[float, ...]:
    offers = dict.fromkeys((b.capacity, b.price) for b in bins)
    axes = [
        axis for axis, amount in enumerate(demand) if amount and any(capacity[axis] for capacity, _ in offers)
    ]
    capacities = [[capacity[axis] for axis in axes] for capacity, _ in offers]
    optimum = dual_prices([demand[axis] for axis in axes], capacities, [price for _, price in offers])
    prices = dict(zip(axes, optimum, strict=True))
    return tuple(prices.get(axis, 0.0) for axis in range(len(demand)))


def lower_bound(items: Sequence[Item], bins: Sequence[Bin], few_kinds: int = FEW_KINDS) -> float:
    """Return a price that no packing of all items into these bins can undercut; 0 if there is nothing to pack.

    For up to `few_kinds` kinds of items, the bound counts how many of each kind each bin can hold; for more kinds, it
    counts whole units of resources.
    """
    return fsum(_part_bound(part, items, bins, few_kinds) for part in _parts(bins))


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


def _part_bound(part: int, items: Sequence[Item], bins: Sequence[Bin], few_kinds: int) -> float:
    members = [number for number, item in enumerate(items) if item.count and part >> number & 1]
    part_bins = [b for b in bins if b.admits & part]
    if not members:
        return 0.0
    if len(members) == 1 and items[members[0]].count <= _EXACT_COUNT:
        return _cheapest_cover(items[members[0]], part_bins)
    free = [place for place, b in enumerate(part_bins) if b.price <= 0]
    valid = [
        m
        for m in measures(items, members, part_bins, few_kinds)
        if not any(m.capacity[place] for place in free)
    ]
    return max(_most_worth(valid, part_bins), min(b.price for b in part_bins))


def _most_worth(valid_measures: Sequence[Measure], bins: Sequence[Bin]) -> float:
    """Return the worth of all items at the best dual prices of these measures."""
    cheapest: dict[tuple[float, ...], float] = {}
    for candidate, *capacity in zip(bins, *(m.capacity for m in valid_measures), strict=True):
        if any(capacity):
            capacities = tuple(capacity)
            cheapest[capacities] = min(candidate.price, cheapest.get(capacities, candidate.price))
    demand = [m.demand for m in valid_measures]
    duals = dual_prices(demand, list(cheapest), list(cheapest.values()))
    worth = [(price, fsum(map(mul, duals, capacity))) for capacity, price in cheapest.items()]
    feasible: float = min([1.0, *(price / most for price, most in worth if most > price)])
    total = fsum(map(mul, duals, demand))
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


class Measure(NamedTuple):
    """The total of all items in this measure (`demand`), and the largest total that each bin may hold (`capacity`)."""

    demand: float
    capacity: Sequence[float]


def measures(
    items: Sequence[Item], members: Sequence[int], bins: Sequence[Bin], few_kinds: int = FEW_KINDS
) -> list[Measure]:
    """Return measures of the items numbered `members`, each of which occurs at least once.

    There are five kinds: each resource; a resource in whole units, for more than `few_kinds` kinds of items; a resource
    of only those items that some bins cannot hold, so that these bins have none of it; the count of one item; and, for
    groups of items that limit themselves on a node, the share of that limit that each item uses.
    """
    holding = _Holding(items, members, bins, few_kinds)
    candidates = [holding.resource(axis, members) for axis in range(len(items[0].size))]
    candidates += [holding.shares(shares, 1.0) for shares in _apart(items, members)]
    if len(members) > few_kinds:
        candidates += [holding.resource(axis, members, unit) for axis, unit in _units(items, members, bins)]
    if len(members) <= _COUNTED_KINDS:
        candidates += [holding.shares({number: 1.0}, inf) for number in members]
    else:
        candidates += [
            holding.resource(axis, subset)
            for subset in dict.fromkeys((*_larger(items, members, bins), *_elsewhere(members, bins)))
            if subset
            for axis in range(_MAIN_AXES)
        ]
    return [measure for measure in candidates if measure.demand > 0 and any(measure.capacity)]


class _Holding:
    """How much of the items each bin can hold."""

    def __init__(
        self, items: Sequence[Item], members: Sequence[int], bins: Sequence[Bin], few_kinds: int
    ) -> None:
        self._items, self._members, self._bins = items, members, bins
        self._is_rough = len(members) > few_kinds
        self._any: dict[Members, list[bool]] = {}

    def resource(self, axis: int, members: Sequence[int], unit: Unit = (1, 1)) -> Measure:
        """Return one resource of some items as a measure; each item and each bin is rounded down to whole units."""
        size, parts = unit
        if self._is_rough:
            demand = sum(self._items[n].size[axis] * parts // size * self._items[n].count for n in members)
            held = [
                b.capacity[axis] * parts // size if holds else 0 for b, holds in self._holding_any(members)
            ]
            return Measure(demand, held)
        demand = sum(self._items[n].size[axis] * self._items[n].count for n in members)
        sizes = [(n, self._items[n].size[axis]) for n in members]
        return Measure(
            demand,
            [
                min(b.capacity[axis], sum(held[n] * size for n, size in sizes))
                for b, held in zip(self._bins, self._most, strict=True)
            ],
        )

    def shares(self, shares: Mapping[int, float], most: float) -> Measure:
        """Return a measure in which each item has a share and a bin holds at most `most`."""
        demand = fsum(self._items[n].count * share for n, share in shares.items())
        if self._is_rough:
            mask = sum(1 << n for n in shares)
            return Measure(demand, [most if b.admits & mask else 0 for b in self._bins])
        return Measure(
            demand, [min(most, fsum(held[n] * share for n, share in shares.items())) for held in self._most]
        )

    def _holding_any(self, members: Sequence[int]) -> Iterator[tuple[Bin, bool]]:
        """Yield each bin with whether it may hold any of some items; False is certain, True is not."""
        key = tuple(members)
        if key not in self._any:
            least = [min(sizes) for sizes in zip(*(self._items[n].size for n in members), strict=True)]
            bits = bytearray(b"0" * (members[-1] + 1))
            for number in members:
                bits[-1 - number] = ord("1")
            mask = int(bits, 2)
            self._any[key] = [bool(b.admits & mask) and all(map(le, least, b.capacity)) for b in self._bins]
        return zip(self._bins, self._any[key], strict=True)

    @cached_property
    def _most(self) -> list[dict[int, int]]:
        """For each bin, how many of each item it holds if it holds nothing else."""
        kinds = [
            (n, min(self._items[n].count, self._items[n].most), self._items[n].size) for n in self._members
        ]
        by_bin = []
        for candidate in self._bins:
            held = {}
            for number, count, size in kinds:
                if not candidate.admits >> number & 1:
                    count = 0
                for available, needed in zip(candidate.capacity, size):  # noqa: B905 - strict costs a quarter of the time
                    if count * needed > available:
                        count = available // needed
                held[number] = count
            by_bin.append(held)
        return by_bin


def _apart(items: Sequence[Item], members: Sequence[int]) -> list[dict[int, float]]:
    """Return, for each group with a cap on itself, the share of a node that each member uses.

    The groups that need most nodes come first.

    If a node holds items with caps m1, m2… on their own group, it holds no more of them than the smallest of these
    caps. The sum of their shares 1/m1, 1/m2… is therefore at most 1.
    """
    by_group: dict[int, dict[int, float]] = {}
    for number in members:
        item = items[number]
        for group, most in item.caps:
            if group in item.groups and most > 0:
                by_group.setdefault(group, {})[number] = 1 / most
        if 0 < item.per_node < item.count:
            by_group[-1 - number] = {number: 1 / item.per_node}
    nodes = {g: fsum(items[n].count * share for n, share in shares.items()) for g, shares in by_group.items()}
    ordered = sorted((g for g in by_group if nodes[g] > 1), key=lambda g: (-nodes[g], g))
    return [by_group[g] for g in ordered[:_MOST_GROUPS]]


def _units(items: Sequence[Item], members: Sequence[int], bins: Sequence[Bin]) -> Iterator[tuple[int, Unit]]:
    """Yield the units of cpu and of memory that give the highest bounds: fractions of the sizes of items.

    A few bins serve to estimate the bound that a unit gives together with the largest group of items that exclude each
    other.
    """
    nodes = max(
        (fsum(items[n].count * s for n, s in shares.items()) for shares in _apart(items, members)),
        default=0.0,
    )
    least = [min(sizes) for sizes in zip(*(items[n].size for n in members), strict=True)]
    ordered = sorted({(b.price, b.capacity) for b in bins if all(map(le, least, b.capacity))})
    samples = [ordered[len(ordered) * place // _LOOKED_AT] for place in range(min(_LOOKED_AT, len(ordered)))]
    for axis in range(_MAIN_AXES):
        counts = Counter[int]()
        for number in members:
            counts[items[number].size[axis]] += items[number].count
        sizes = [size for size, _ in counts.most_common(_MOST_SIZES) if size]
        units = {size / parts: (size, parts) for parts in _PARTS for size in sorted(sizes)}
        ranked = []
        for _, (size, parts) in sorted(units.items()):
            demand = sum(item_size * parts // size * count for item_size, count in counts.items())
            held = [(price, capacity[axis] * parts // size) for price, capacity in samples]
            ranked.append((-_proves(demand, nodes, held), size, parts))
        for _, size, parts in sorted(ranked)[:_UNITS]:
            yield axis, (size, parts)


def _proves(demand: float, nodes: float, held: Sequence[tuple[float, int]]) -> float:
    """Return the most that `demand` and `nodes` are worth if no bin is worth more than its price.

    `held` are prices and capacities of bins, in order of price.
    """
    if not held:
        return 0.0
    least, first = held[0]
    worths = [(price - least) / (most - first) for price, most in held[1:] if most > first]
    worths += [min((price / most for price, most in held if most), default=0.0)]
    return max(
        demand * worth + nodes * max(0.0, min(price - most * worth for price, most in held))
        for worth in worths
    )


def _larger(items: Sequence[Item], members: Sequence[int], bins: Sequence[Bin]) -> Iterator[Members]:
    """Yield the items that are too large for some bins, in cpu and in memory."""
    for axis in range(_MAIN_AXES):
        sizes = sorted(items[n].size[axis] for n in members)
        capacities = sorted({b.capacity[axis] for b in bins})
        for place in range(1, _MOST_THRESHOLDS + 1):
            larger = bisect_left(capacities, sizes[len(sizes) * place // (_MOST_THRESHOLDS + 1)])
            if larger:
                yield tuple(n for n in members if items[n].size[axis] > capacities[larger - 1])


def _elsewhere(members: Sequence[int], bins: Sequence[Bin]) -> Iterator[Members]:
    """Yield the items that bins do not admit, starting with the mask that most bins have."""
    often = Counter(b.admits for b in bins)
    for admits in sorted(often, key=lambda mask: (-often[mask], mask))[:_MOST_MASKS]:
        admitted = f"{admits:0{members[-1] + 1}b}"[::-1]
        yield tuple(n for n in members if admitted[n] == "0")


def scarcity_prices(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, charged: Sequence[tuple[int, int]]
) -> list[float]:
    """Return dual prices per unit of the `charged` amounts, each given as the number of a limit and an axis of it.

    A dual price is what one more unit would save in the linear program of `lower_bound` with these limits. It is at
    least 0, and 0 for amounts that are not scarce. Any such prices give a bound; these give a good one.
    """
    members = [number for number, item in enumerate(items) if item.count]
    served = measures(items, members, bins) if members else []
    amounts = [limits[number][axis] for number, axis in charged]
    cheapest: dict[_Coefficients, float] = {}
    for place, candidate in enumerate(bins):
        held = [m.capacity[place] / m.demand for m in served]
        used = [
            candidate.cost[axis] if candidate.limit == number and candidate.cost else 0
            for number, axis in charged
        ]
        if any(held) and all(amount <= most for amount, most in zip(used, amounts, strict=True)):
            charges = (-amount / most if most else 0.0 for amount, most in zip(used, amounts, strict=True))
            row = (*held, *charges)
            cheapest[row] = min(candidate.price, cheapest.get(row, candidate.price))
    worth = scarcity(list(cheapest.items()), len(served), len(charged))
    return [value / most if most else 0.0 for value, most in zip(worth, amounts, strict=True)]


def commitment_prices(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, charged: Sequence[tuple[int, int]]
) -> list[float]:
    """Return what one more unit of each of the `charged` amounts would save.

    Each amount is given as the number of a limit and an axis of it. These are the dual prices of the fractional plan
    or, if there are many kinds of items, of a coarser linear program. Any prices of at least 0 give a lower bound.
    """
    if sum(item.count > 0 for item in items) > FEW_KINDS:
        return scarcity_prices(items, bins, limits, charged)
    from nodesmith.decisions.packing.columngeneration.solve import (
        scarcity,  # imports numpy and HiGHS: a quarter of a second
    )

    served = [item for item in items if item.count]
    if not served or not bins:
        return [0.0] * len(charged)
    savings = scarcity(items, undominated(usable(items, filled(items, bins))), limits)
    return [savings[number][axis] if number in savings else 0.0 for number, axis in charged]


def tight_bound(items: Sequence[Item], bins: Sequence[Bin]) -> float:
    """Return `lower_bound` or, where there are few patterns, the price of the best fractional plan if it is higher."""
    served = [item for item in items if item.count]
    bound = lower_bound(items, bins)
    if not served or number_of_patterns(served) > _MOST_LISTED:
        return bound
    from nodesmith.decisions.packing.columngeneration.solve import linear_bound

    numbers = [n for n, item in enumerate(items) if item.count]
    masks = {b.admits: sum((b.admits >> n & 1) << place for place, n in enumerate(numbers)) for b in bins}
    admitting = [replace(b, admits=masks[b.admits]) for b in bins if masks[b.admits]]
    return max(bound, linear_bound(served, undominated(usable(served, filled(served, admitting)))))
