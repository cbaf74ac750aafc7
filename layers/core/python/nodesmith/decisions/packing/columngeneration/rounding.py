"""From a fractional plan, or from given patterns alone, to whole nodes.

`rounded` buys the whole part of each amount, less one of each pattern to leave some choice; the rest is a small integer
program over the patterns with the lowest reduced costs. `cheapest_cover` solves small problems by dynamic programming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import floor, prod

import highspy
import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.columngeneration.columns import Column, FractionalPlan, Master
from nodesmith.decisions.packing.exact import A_NODE
from nodesmith.decisions.packing.problem import Bin, Item, Limits, Vector

_MOST_COLUMNS = 60
_MOST_BRANCHES = 20
_GAP = 5e-4
_EPSILON = 1e-6
_Indices = NDArray[np.int32]


def rounded(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan
) -> list[tuple[Column, int]]:
    """Return whole numbers of columns close to the fractional plan.

    They may serve some items more often than needed and, if limits bind, others not at all.
    """
    kept = {c: max(0, floor(a + _EPSILON) - 1) for c, a in zip(mixed.columns, mixed.amounts, strict=True)}
    counts = [sum(n * column.counts[i] for column, n in kept.items()) for i in range(len(items))]
    rest = [
        Item(item.size, max(0, item.count - served), item.per_node)
        for item, served in zip(items, counts, strict=True)
    ]
    bought, _ = whole(rest, bins, _spared(bins, limits, kept), _promising(bins, mixed))
    for column, amount in bought:
        kept[column] += amount
    return [(column, amount) for column, amount in kept.items() if amount]


def wholes(mixed: FractionalPlan) -> list[tuple[Column, int]]:
    """Return the whole part of each amount in the fractional plan."""
    pairs = zip(mixed.columns, mixed.amounts.tolist(), strict=True)
    return [(column, floor(amount + _EPSILON)) for column, amount in pairs if amount + _EPSILON >= 1]


def without_dear(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan, most_price: float
) -> FractionalPlan:
    """Return the cheapest fractional plan of those columns whose bins cost at most `most_price`."""
    master = Master(items, bins, limits)
    master.add(column for column in mixed.columns if bins[column.bin].price <= most_price)
    return master.solve(mixed.steps)


def _promising(bins: Sequence[Bin], mixed: FractionalPlan) -> list[Column]:
    """Return the columns in the fractional plan, and then those with the lowest reduced costs."""
    prices = np.array([bins[c.bin].price - mixed.discounts[c.bin] for c in mixed.columns])
    extra = prices - np.array([c.counts for c in mixed.columns]) @ mixed.worth
    extra[mixed.amounts > _EPSILON] = -1.0
    return [mixed.columns[c] for c in np.argsort(extra, kind="stable")[:_MOST_COLUMNS]]


def _spared(bins: Sequence[Bin], limits: Limits, kept: Mapping[Column, int]) -> dict[int, Vector]:
    """Return what remains of the limits after the kept columns are bought."""
    left = {limit: list(amounts) for limit, amounts in limits.items()}
    for column, number in kept.items():
        bin_ = bins[column.bin]
        if bin_.limit in left:
            left[bin_.limit] = [
                have - number * cost for have, cost in zip(left[bin_.limit], bin_.cost, strict=True)
            ]
    return {limit: tuple(amounts) for limit, amounts in left.items()}


def whole(
    items: Sequence[Item],
    bins: Sequence[Bin],
    limits: Limits,
    columns: Iterable[Column],
    gap: float = _GAP,
) -> tuple[list[tuple[Column, int]], float]:
    """Buy whole numbers of columns as cheaply as a short branch and bound finds; return them and its lower bound."""
    master = Master(items, bins, limits)
    master.add(columns)
    first, end = len(items), len(items) + len(master.columns)
    numbers = np.arange(first, end, dtype=np.int32)
    integer = np.full(end - first, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
    master.solver.changeColsIntegrality(end - first, numbers, integer)
    master.solver.setOptionValue("mip_max_nodes", _MOST_BRANCHES)
    master.solver.setOptionValue("mip_rel_gap", gap)
    master.solver.run()
    values = list(master.solver.getSolution().col_value)[first:]
    bought = [(c, round(v)) for c, v in zip(master.columns, values, strict=True) if v > 0.5]
    return bought, master.solver.getInfo().mip_dual_bound


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
    """The lowest price of every state, and the pattern that is bought first for it.

    A state is the count of each item still to be served. Whatever is left of the first item must be served by a pattern
    that holds some of it. States are therefore processed item by item, and all states that differ only in later items
    are processed at once.
    """

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
