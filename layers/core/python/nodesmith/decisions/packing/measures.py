"""Measures: a size of each item such that no pattern of a bin exceeds a known total. Each can carry a lower bound.

There are four kinds of measures: each resource; a resource of only those items that some bins cannot hold, so that
these bins have none of it; the count of one item; and, for groups of items that limit themselves on a node, the share
of that limit that each item uses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import fsum, inf
from operator import le
from typing import NamedTuple

from nodesmith.decisions.packing.problem import Bin, Item

_FEW_KINDS = 40
_COUNTED_KINDS = 12
_MOST_THRESHOLDS, _MOST_MASKS = 6, 4
_MOST_GROUPS = 8
_MAIN_AXES = 2  # cpu and memory
Members = tuple[int, ...]


class Measure(NamedTuple):
    """The total of all items in this measure, and the most of it that each bin may hold."""

    demand: float
    capacity: Sequence[float]


def measures(items: Sequence[Item], members: Sequence[int], bins: Sequence[Bin]) -> list[Measure]:
    """Return measures of the items numbered `members`, each of which occurs at least once."""
    holding = _Holding(items, members, bins)
    found = [holding.resource(axis, members) for axis in range(len(items[0].size))]
    found += [holding.shares(shares, 1.0) for shares in _apart(items, members)]
    if len(members) <= _COUNTED_KINDS:
        found += [holding.shares({number: 1.0}, inf) for number in members]
    else:
        found += [
            holding.resource(axis, some)
            for some in dict.fromkeys((*_larger(items, members, bins), *_elsewhere(members, bins)))
            if some
            for axis in range(_MAIN_AXES)
        ]
    return [measure for measure in found if measure.demand > 0 and any(measure.capacity)]


class _Holding:
    """What each bin can hold of the items."""

    def __init__(self, items: Sequence[Item], members: Sequence[int], bins: Sequence[Bin]) -> None:
        self._items, self._members, self._bins = items, members, bins

    def resource(self, axis: int, members: Sequence[int]) -> Measure:
        """Return one resource of some items as a measure."""
        demand = sum(self._items[n].size[axis] * self._items[n].count for n in members)
        if len(self._members) > _FEW_KINDS:
            return Measure(
                demand, [b.capacity[axis] if holds else 0 for b, holds in self._holding_any(members)]
            )
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
        if len(self._members) > _FEW_KINDS:
            mask = sum(1 << n for n in shares)
            return Measure(demand, [most if b.admits & mask else 0 for b in self._bins])
        return Measure(
            demand, [min(most, fsum(held[n] * share for n, share in shares.items())) for held in self._most]
        )

    def _holding_any(self, members: Sequence[int]) -> Iterator[tuple[Bin, bool]]:
        """Yield each bin with whether it may hold any of some items; False is certain, True is not."""
        least = [min(sizes) for sizes in zip(*(self._items[n].size for n in members), strict=True)]
        bits = bytearray(b"0" * (members[-1] + 1))
        for number in members:
            bits[-1 - number] = ord("1")
        mask = int(bits, 2)
        for candidate in self._bins:
            yield candidate, bool(candidate.admits & mask) and all(map(le, least, candidate.capacity))

    @cached_property
    def _most(self) -> list[dict[int, int]]:
        """Return for each bin how many of each item it holds if it holds nothing else."""
        kinds = [
            (n, min(self._items[n].count, self._items[n].most), self._items[n].size) for n in self._members
        ]
        found = []
        for candidate in self._bins:
            held = {}
            for number, count, size in kinds:
                if not candidate.admits >> number & 1:
                    count = 0
                for have, each in zip(candidate.capacity, size):  # noqa: B905 - strict costs a quarter of the time
                    if count * each > have:
                        count = have // each
                held[number] = count
            found.append(held)
        return found


def _apart(items: Sequence[Item], members: Sequence[int]) -> list[dict[int, float]]:
    """Return for each group that caps itself the share of a node that each member uses, the groups of most nodes first.

    If a node holds items with caps m1, m2… on their own group, it holds no more of them than the smallest of these
    caps. The sum of their shares 1/m1, 1/m2… is therefore at most 1.
    """
    found: dict[int, dict[int, float]] = {}
    for number in members:
        item = items[number]
        for group, most in item.caps:
            if group in item.groups and most > 0:
                found.setdefault(group, {})[number] = 1 / most
        if 0 < item.per_node < item.count:
            found[-1 - number] = {number: 1 / item.per_node}
    nodes = {g: fsum(items[n].count * share for n, share in shares.items()) for g, shares in found.items()}
    ordered = sorted((g for g in found if nodes[g] > 1), key=lambda g: (-nodes[g], g))
    return [found[g] for g in ordered[:_MOST_GROUPS]]


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
