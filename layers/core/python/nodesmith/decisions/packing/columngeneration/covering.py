"""The cheapest whole-number combination of given patterns that serves all items, by dynamic programming.

A state is the count of each item still to be served. Whatever is left of the first item must be served by a pattern
that holds some of it. States are therefore processed item by item, and all states that differ only in later items are
processed at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.exact import A_NODE
from nodesmith.decisions.packing.problem import Vector

_Indices = NDArray[np.int32]


def states(counts: Sequence[int]) -> int:
    """Return the number of states; work and memory are proportional to it times the number of patterns."""
    return prod(count + 1 for count in counts)


def cheapest_cover(
    counts: Sequence[int], patterns: Sequence[Vector], prices: Sequence[float]
) -> dict[int, int] | None:
    """Return how often to buy each pattern (by its index) to serve all items; None if these patterns cannot.

    A pattern may serve less than it holds.
    """
    order = sorted(range(len(counts)), key=lambda item: (counts[item], item))
    table = _Table([counts[i] for i in order], [[held[i] for i in order] for held in patterns], prices)
    for axis in reversed(range(len(counts))):
        table.work_off(axis)
    return table.bought()


class _Table:
    """The lowest price of every state, and the pattern that is bought first for it."""

    def __init__(
        self, counts: Sequence[int], patterns: Sequence[Sequence[int]], prices: Sequence[float]
    ) -> None:
        self._counts, self._patterns = counts, patterns
        self._prices = [price + A_NODE for price in prices]
        self._strides = [states(counts[axis + 1 :]) for axis in range(len(counts))]
        self._best = np.full(states(counts), np.inf)
        self._best[0] = 0.0
        self._first: _Indices = np.full(states(counts), -1, dtype=np.int32)

    def work_off(self, axis: int) -> None:
        """Compute the prices of the states in which this item is the first with any left."""
        stride = self._strides[axis]
        holding = [place for place, held in enumerate(self._patterns) if held[axis]]
        rests = [self._rests(self._patterns[place], axis + 1) for place in holding]
        for left in range(1, self._counts[axis] + 1):
            best = self._best[left * stride : (left + 1) * stride]
            first = self._first[left * stride : (left + 1) * stride]
            for place, rest in zip(holding, rests, strict=True):
                after = max(0, left - self._patterns[place][axis]) * stride
                price = self._best[after : after + stride][rest] + self._prices[place]
                cheaper = price < best
                np.copyto(best, price, where=cheaper)
                first[cheaper] = place

    def _rests(self, held: Sequence[int], axis: int) -> _Indices:
        """Return for every state of the items from `axis` on the number of the state that remains after one pattern."""
        rests: _Indices = np.zeros(1, dtype=np.int32)
        for count, taken, stride in zip(self._counts[axis:], held[axis:], self._strides[axis:], strict=True):
            left: _Indices = np.maximum(np.arange(count + 1, dtype=np.int32) - taken, 0) * stride
            rests = (rests[:, None] + left[None, :]).ravel()
        return rests

    def bought(self) -> dict[int, int] | None:
        """Follow the first patterns from the state in which all items are left."""
        if not np.isfinite(self._best[-1]):
            return None
        found: Counter[int] = Counter()
        left = list(self._counts)
        while any(left):
            place = int(self._first[sum(map(int.__mul__, left, self._strides))])
            found[place] += 1
            left = [max(0, have - held) for have, held in zip(left, self._patterns[place], strict=True)]
        return dict(found)
