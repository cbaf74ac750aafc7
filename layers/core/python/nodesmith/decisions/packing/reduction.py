"""Reduce a problem before the search: usable capacities, undominated bins, and parts that are packed separately.

Pods request round amounts, while nodes have odd ones. Capacity that no sum of requests can use is worth nothing, and
bins that differ only in such capacity become equal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from operator import le
from typing import NamedTuple

from nodesmith.decisions.packing.problem import Bin, Item, Vector

_MOST_SUMS = 4096
_Class = tuple[tuple[str, ...], tuple[object, ...]]
_Classes = list[tuple[tuple[str, ...], list[int]]]


def usable(items: Sequence[Item], bins: Sequence[Bin]) -> list[Bin]:
    """Return the bins with only the capacity that items can use."""
    axes = [
        _Axis({i.size[axis] for i in items}, max(b.capacity[axis] for b in bins))
        for axis in range(len(items[0].size))
    ]
    capacities = (
        tuple([axis.used(have) for axis, have in zip(axes, capacity, strict=True)])
        for capacity in _filled(items, bins)
    )
    return [_with_room(b, capacity) for b, capacity in zip(bins, capacities, strict=True)]


def filled(items: Sequence[Item], bins: Sequence[Bin]) -> list[Bin]:
    """Return the bins with their capacity cut to the total demand, or to what fits by count if that is less.

    By count, a bin needs at most the size of the largest item times the number of the smallest items that it holds.
    """
    if not items:
        return list(bins)
    return [_with_room(b, capacity) for b, capacity in zip(bins, _filled(items, bins), strict=True)]


def _filled(items: Sequence[Item], bins: Sequence[Bin]) -> Iterator[Vector]:
    by_axis = list(zip(*(item.size for item in items), strict=True))
    demand = [sum(item.size[axis] * item.count for item in items) for axis in range(len(by_axis))]
    least = [(axis, size) for axis, size in enumerate(map(min, by_axis)) if size]
    largest = list(map(max, by_axis))
    everything = sum(item.count for item in items)
    for candidate in bins:
        capacity = candidate.capacity
        number = min([everything, *(capacity[axis] // size for axis, size in least)])
        yield tuple(
            [min(*amounts, number * size) for *amounts, size in zip(capacity, demand, largest, strict=True)]
        )


def _with_room(candidate: Bin, capacity: Vector) -> Bin:
    return candidate if capacity == candidate.capacity else _changed(candidate, capacity, candidate.admits)


def _changed(candidate: Bin, capacity: Vector, admits: int) -> Bin:
    """Return a bin with another capacity and mask. For thousands of bins, `replace` would take twice as long."""
    paid = candidate.substitute, candidate.paid_axis, candidate.unpaid_price, candidate.dual_cost
    return Bin(candidate.key, capacity, candidate.price, admits, candidate.limit, candidate.cost, *paid)


class _Axis:
    """The sums of some sizes, in units of their greatest common divisor: bit n of `_sums` is set if n is such a sum."""

    def __init__(self, sizes: set[int], largest: int) -> None:
        self._unit = gcd(*sizes)
        most = largest // self._unit if self._unit else 0
        self._sums = 1 if most <= _MOST_SUMS else 0
        if self._sums:
            for size in sorted(sizes - {0}):
                step = size // self._unit
                while step <= most:
                    self._sums |= self._sums << step
                    step *= 2
        self._cached: dict[int, int] = {}

    def used(self, capacity: int) -> int:
        """Return the largest sum that is at most `capacity`, or an amount between that sum and `capacity`."""
        if not self._unit:
            return 0
        if capacity not in self._cached:
            units = capacity // self._unit
            if self._sums:
                units = (self._sums & (2 << units) - 1).bit_length() - 1
            self._cached[capacity] = units * self._unit
        return self._cached[capacity]


def undominated(bins: Iterable[Bin]) -> list[Bin]:
    """Return the bins that no other bin dominates, cheapest first.

    One bin dominates another if it admits at least the same items, has at least the same capacity, has no higher price,
    and takes no more of the same limit. Of equal bins, the one with the lowest price and key is kept.
    """
    cheapest = _cheapest_of_equals(bins)
    skylines = {(b.limit, b.admits): Skyline() for b in cheapest}
    rivals_of = {
        (limit, admits): [r for (p, a), r in skylines.items() if p == limit and not admits & ~a]
        for limit, admits in skylines
    }
    frontier: list[Bin] = []
    for candidate in sorted(cheapest, key=lambda b: (b.price, tuple(-r for r in b.capacity), b.key)):
        group = candidate.limit, candidate.admits
        offered = (*candidate.capacity, *(-amount for amount in candidate.cost))
        if not any(skyline.covers(offered) for skyline in rivals_of[group]):
            skylines[group].add(offered)
            frontier.append(candidate)
    return sorted(frontier, key=lambda b: (b.price, b.key))


class Skyline:
    """Vectors of equal length, each of which exceeds every other vector on some axis.

    `_first` increases. `_second` decreases: it is the largest second amount of any vector with at least that first
    amount. With them, most vectors that are not covered need no further comparison.
    """

    def __init__(self) -> None:
        self._vectors: list[Sequence[float]] = []
        self._first: list[float] = []
        self._second: list[float] = []

    def add(self, vector: Sequence[float]) -> None:
        """Add a vector."""
        self._vectors.append(vector)
        first, second = vector[0], vector[1 % len(vector)]
        if not self._has(first, second):
            end = start = bisect_right(self._first, first)
            while start and self._second[start - 1] <= second:
                start -= 1
            self._first[start:end], self._second[start:end] = [first], [second]

    def _has(self, first: float, second: float) -> bool:
        place = bisect_left(self._first, first)
        return place < len(self._first) and self._second[place] >= second

    def covers(self, vector: Sequence[float]) -> bool:
        """Return whether one of the vectors has at least as much of everything.

        If vectors are added in some order, the last one is the likeliest, so it is tried first.
        """
        first, second = vector[0], vector[1 % len(vector)]
        if not self._has(first, second):
            return False
        at = 1 % len(vector)
        for rival in reversed(self._vectors):
            if rival[0] < first or rival[at] < second:  # this is quick, and settles most rivals
                continue
            if all(map(le, vector, rival)):
                return True
        return False


def _cheapest_of_equals(bins: Iterable[Bin]) -> list[Bin]:
    best: dict[tuple[int, int, Vector, Vector], Bin] = {}
    for candidate in bins:
        same = (candidate.limit, candidate.admits, candidate.capacity, candidate.cost)
        incumbent = best.get(same)
        if incumbent is None or (candidate.price, candidate.key) < (incumbent.price, incumbent.key):
            best[same] = candidate
    return list(best.values())


@dataclass(frozen=True, slots=True)
class Part:
    """Items and bins that are independent of those of other parts, except for limits.

    `members[i]` are the numbers, in the whole problem, of the items that item i of the part represents.
    """

    items: tuple[Item, ...]
    bins: tuple[Bin, ...]
    members: tuple[tuple[int, ...], ...]


def parts(items: Sequence[Item], bins: Sequence[Bin]) -> list[Part]:
    """Return the parts, ordered by their first items. Items that no bin admits are in no part."""
    masks = sorted({b.admits for b in bins if b.admits})
    signatures = admitted_by(len(items), masks)
    classes: dict[_Class, list[int]] = {}
    for number, item in enumerate(items):
        if item.count and "1" in signatures[number]:
            limited = number if item.per_node < item.count else -1  # unique, so that it is never merged
            alike = item.size, limited, item.groups, item.caps
            classes.setdefault((signatures[number], alike), []).append(number)
    return [_part(part, items, bins, masks) for part in _joined(classes)]


def admitted_by(number_of_items: int, masks: Sequence[int]) -> list[tuple[str, ...]]:
    """Return for each item, mask by mask, whether the mask admits it: "1" or "0".

    Items with equal results may go into the same bins.
    """
    spelled = [f"{mask & ((1 << number_of_items) - 1):0{number_of_items}b}"[::-1] for mask in masks]
    return list(zip(*spelled, strict=True)) if spelled else [()] * number_of_items


def _joined(classes: dict[_Class, list[int]]) -> list[_Classes]:
    """Join the classes of items that some mask admits together."""
    by_signature: dict[tuple[str, ...], _Classes] = {}
    for (signature, _), members in classes.items():
        by_signature.setdefault(signature, []).append((signature, members))
    joined: list[tuple[int, _Classes]] = []
    for signature, group in by_signature.items():
        bits, together = int("".join(signature), 2), list(group)
        apart = []
        for other_bits, other in joined:
            if other_bits & bits:
                bits, together = bits | other_bits, other + together
            else:
                apart.append((other_bits, other))
        joined = [*apart, (bits, together)]
    ordered = [sorted(part, key=lambda entry: entry[1]) for _, part in joined]
    return sorted(ordered, key=lambda part: part[0][1])


def _part(classes: _Classes, items: Sequence[Item], bins: Sequence[Bin], masks: Sequence[int]) -> Part:
    members = tuple(tuple(numbers) for _, numbers in classes)
    merged = tuple(_merged([items[n] for n in numbers]) for numbers in members)
    local = {
        mask: int("".join(signature[place] for signature, _ in classes)[::-1], 2)
        for place, mask in enumerate(masks)
    }
    part_bins = tuple(_admitting(local[b.admits], b) for b in bins if local.get(b.admits))
    return Part(merged, part_bins, members)


def _admitting(admits: int, candidate: Bin) -> Bin:
    return candidate if candidate.admits == admits else _changed(candidate, candidate.capacity, admits)


def _merged(alike: Sequence[Item]) -> Item:
    """Merge identical items into one. If there are several, none of them can reach its own limit per node."""
    if len(alike) == 1:
        return alike[0]
    count = sum(item.count for item in alike)
    return replace(alike[0], count=count, per_node=count)


class ItemClass(NamedTuple):
    """The properties that all items of a class share; `alone` is set for items of the group that excludes itself."""

    size: Vector
    admitted: tuple[str, ...]
    alone: bool


def item_classes(items: Sequence[Item], masks: Sequence[int]) -> dict[ItemClass, list[int]]:
    """Return the numbers of the items of each class; `masks` are those of the bins, sorted."""
    group = _largest_exclusion(items)
    classes: dict[ItemClass, list[int]] = {}
    for number, (item, admitted) in enumerate(zip(items, admitted_by(len(items), masks), strict=True)):
        classes.setdefault(ItemClass(item.size, admitted, _excludes(item, group)), []).append(number)
    return classes


def _largest_exclusion(items: Sequence[Item]) -> int | None:
    """Return the group that needs most nodes among the groups of which a node holds at most one item."""
    nodes: dict[int, int] = {}
    for item in items:
        for group in item.groups:
            if _excludes(item, group):
                nodes[group] = nodes.get(group, 0) + item.count
    return max(nodes, key=lambda group: (nodes[group], -group), default=None)


def _excludes(item: Item, group: int | None) -> bool:
    """Return whether an item belongs to a group and shares no node with other items of that group."""
    return group in item.groups and (group, 1) in item.caps
