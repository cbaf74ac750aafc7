"""Column generation over all patterns, if there are few enough to list: exact, so it yields a lower bound.

The cheapest bin of every pattern is found in one sweep over the bins; pricing is then one product of a matrix with the
dual prices. No packing costs less than the worth of all items at the dual prices, times the minimum over all patterns
of price per worth (Farley, 1990).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nodesmith.decisions.packing.columngeneration.master import Column, FractionalPlan, Master
from nodesmith.decisions.packing.columngeneration.patterns import Floats, Ints
from nodesmith.decisions.packing.problem import Bin, Item

_MOST_ROUNDS = 60
_TOLERANCE = 1e-9


class Patterns(NamedTuple):
    """All patterns that some bin holds: counts (items × patterns), and the number and price of the cheapest bin."""

    counts: Ints
    bin: Ints
    price: Floats

    def column(self, number: int) -> Column:
        """Return pattern `number` as a column."""
        return Column(int(self.bin[number]), tuple(self.counts[:, number].tolist()))

    def near(self, worth: Floats, gap: float, most: int) -> list[Column]:
        """Return up to `most` patterns whose price exceeds their worth by at most `gap`, smallest excess first.

        That excess is the reduced cost. If the price of a known plan exceeds the lower bound by `gap`, a cheaper plan
        contains no other patterns.
        """
        extra = self.price - worth @ self.counts
        order = np.argsort(extra, kind="stable")
        return [self.column(n) for n in order[extra[order] <= gap + _TOLERANCE][:most].tolist()]


def patterns(items: Sequence[Item], bins: Sequence[Bin]) -> Patterns:
    """List every pattern, with its cheapest bin."""
    ranges = [np.arange(min(item.count, item.most) + 1) for item in items]
    counts = np.array([axis.ravel() for axis in np.meshgrid(*ranges, indexing="ij")])[:, 1:]
    counts = counts[:, _may_share(items, counts)]
    sizes = np.array([item.size for item in items], dtype=np.int64).T @ counts
    members = (counts > 0).T @ (1 << np.arange(len(items), dtype=np.int64))
    chosen = np.full(counts.shape[1], -1, dtype=np.int64)
    ordered = sorted(range(len(bins)), key=lambda n: (bins[n].price, bins[n].key))
    open_ = np.arange(counts.shape[1])
    for number in ordered:
        candidate = bins[number]
        fits = members[open_] & ~candidate.admits == 0
        for axis, capacity in enumerate(candidate.capacity):
            fits &= sizes[axis, open_] <= capacity
        chosen[open_[fits]] = number
        open_ = open_[~fits]
    held = chosen >= 0
    prices = np.array([b.price for b in bins])
    return Patterns(counts[:, held], chosen[held], prices[chosen[held]])


def _may_share(items: Sequence[Item], counts: Ints) -> Ints:
    allowed = np.ones(counts.shape[1], dtype=bool)
    for number, item in enumerate(items):
        for group, most in item.caps:
            members = [n for n, other in enumerate(items) if group in other.groups]
            allowed &= (counts[number] == 0) | (counts[members].sum(axis=0) <= most)
    return np.flatnonzero(allowed)


def solve_all_patterns(
    items: Sequence[Item], bins: Sequence[Bin], known: Patterns, first: Iterable[Column]
) -> tuple[FractionalPlan, float]:
    """Return the cheapest fractional plan, ignoring limits, and the lower bound that it proves."""
    demand = np.array([item.count for item in items], dtype=np.float64)
    counts = known.counts.astype(np.float64)
    master = Master(items, bins, {})
    master.add(first)
    steps, bound = 0, 0.0
    mixed = master.solve(steps)
    for _ in range(_MOST_ROUNDS):
        steps += counts.shape[1]
        worth = np.maximum(mixed.worth, 0.0) @ counts
        least = float((known.price / np.maximum(worth, _TOLERANCE)).min(initial=1.0))
        bound = max(bound, least * float(np.maximum(mixed.worth, 0.0) @ demand))
        gains = worth - known.price
        order = np.argsort(-gains, kind="stable")
        _, best_of_bin = np.unique(known.bin[order], return_index=True)
        best = order[np.sort(best_of_bin)]
        if not master.add(known.column(n) for n in best[gains[best] > _TOLERANCE].tolist()):
            break
        mixed = master.solve(steps)
    return mixed._replace(steps=steps), bound
