"""Reduce each bin's capacity to what items can use: at most the largest sum of item sizes that fits.

Pods request round amounts, nodes have odd ones. Capacity that no sum of requests reaches is worth nothing, and bins
that differ only in such capacity become equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from nodesmith.decisions.packing.problem import Bin, Item, Vector

_MOST_SUMS = 4096


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
    wanted = [sum(item.size[axis] * item.count for item in items) for axis in range(len(by_axis))]
    least = [(axis, size) for axis, size in enumerate(map(min, by_axis)) if size]
    largest = list(map(max, by_axis))
    everything = sum(item.count for item in items)
    for candidate in bins:
        capacity = candidate.capacity
        number = min([everything, *(capacity[axis] // size for axis, size in least)])
        yield tuple(
            [min(*each, number * size) for *each, size in zip(capacity, wanted, largest, strict=True)]
        )


def _with_room(candidate: Bin, capacity: Vector) -> Bin:
    if capacity == candidate.capacity:
        return candidate
    return Bin(candidate.key, capacity, candidate.price, candidate.admits, candidate.limit, candidate.cost)


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
        self._known: dict[int, int] = {}

    def used(self, capacity: int) -> int:
        """Return the largest sum that is at most `capacity`, or an amount between that sum and `capacity`."""
        if not self._unit:
            return 0
        if capacity not in self._known:
            units = capacity // self._unit
            if self._sums:
                units = (self._sums & (2 << units) - 1).bit_length() - 1
            self._known[capacity] = units * self._unit
        return self._known[capacity]
