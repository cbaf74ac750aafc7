"""Column generation: the cheapest mix of whole fillings, by linear programming.

A column is a filling of one bin. The master problem buys columns, in fractions, so that every item is served and no
purse is overspent; its dual prices say what an item is worth, pricing looks for fillings worth more than their bin.
Gilmore and Gomory's method (1961), with heuristic pricing: its value is that of a plan in fractions, not a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import NamedTuple

import highspy
import numpy as np

from nodesmith.decisions.packing.batch import Floats, Ints
from nodesmith.decisions.packing.pricing import Fillings, orders, shaken
from nodesmith.decisions.packing.problem import Bin, Item, Vector

_SERVED_AT_ANY_PRICE = 10.0
_TOLERANCE = 1e-7
_NEAR = 0.06
_ENOUGH_FAILURES = 2
_MOST_ROUNDS = 80


class Column(NamedTuple):
    """A filling of bin number `bin`."""

    bin: int
    counts: Vector


class Mix(NamedTuple):
    """How often each column is bought, and what serving one item of each kind adds to the price (`worth`)."""

    columns: tuple[Column, ...]
    amounts: Floats
    worth: Floats
    discounts: Floats
    """what each bin's purse makes it dearer by"""
    steps: int


class Master:
    """The master problem: a row per item, a row per amount of a purse, a column per filling."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], purses: Mapping[int, Vector]) -> None:
        self._bins = bins
        self.columns: list[Column] = []
        self.solver = solver()
        for item in items:
            self.solver.addRow(float(item.count), highspy.kHighsInf, 0, *_entries([], []))
        used = sorted({b.purse for b in bins} & purses.keys())
        self._purse_rows = {
            purse: range(first, first + len(purses[purse]))
            for purse, first in zip(used, _starts(len(items), (len(purses[p]) for p in used)), strict=True)
        }
        for purse in used:
            for amount in purses[purse]:
                self.solver.addRow(-highspy.kHighsInf, float(max(0, amount)), 0, *_entries([], []))
        missing = _SERVED_AT_ANY_PRICE * max(b.price for b in bins)
        for row in range(len(items)):
            self.solver.addCol(missing, 0.0, highspy.kHighsInf, 1, *_entries([row], [1]))
        self._items = len(items)

    def add(self, columns: Iterable[Column]) -> int:
        """Offer the columns that are not offered yet; give their number."""
        known = set(self.columns)
        new = [c for c in dict.fromkeys(columns) if c not in known and any(c.counts)]
        for column in new:
            rows = [i for i, n in enumerate(column.counts) if n]
            values = [column.counts[i] for i in rows]
            bin_ = self._bins[column.bin]
            for row, cost in zip(self._purse_rows.get(bin_.purse, ()), bin_.cost, strict=False):
                rows.append(row)
                values.append(cost)
            self.solver.addCol(bin_.price, 0.0, highspy.kHighsInf, len(rows), *_entries(rows, values))
        self.columns += new
        return len(new)

    def solve(self, steps: int) -> Mix:
        """Give the cheapest mix of the columns that are offered."""
        self.solver.run()
        solution = self.solver.getSolution()
        duals = np.array(solution.row_dual)
        discounts = [
            fsum(duals[row] * cost for row, cost in zip(rows, b.cost, strict=True)) if rows else 0.0
            for b, rows in ((b, self._purse_rows.get(b.purse, range(0))) for b in self._bins)
        ]
        amounts = np.array(solution.col_value)[self._items :]
        return Mix(tuple(self.columns), amounts, duals[: self._items], np.array(discounts), steps)


def solver() -> highspy.Highs:
    """Give HiGHS, silent, on one thread and without chance: the same input gives the same answer."""
    made = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", 0)):
        made.setOptionValue(option, value)
    return made


def mix(
    items: Sequence[Item],
    bins: Sequence[Bin],
    purses: Mapping[int, Vector],
    first: Iterable[Column],
    most_steps: int,
) -> Mix:
    """Generate columns, from some that serve all, until neither search nor refilling finds a better one."""
    master = Master(items, bins, purses)
    master.add(first)
    prices = np.array([b.price for b in bins])
    steps = failures = thorough = 0
    current = master.solve(steps)
    for _ in range(_MOST_ROUNDS):
        found = Fillings(items, bins, np.maximum(current.worth, 0.0))
        for order in orders(items, bins, found.worth):
            found.search(order)
        gains = found.value - prices + current.discounts
        improved = [_column(found.counts, b) for b in np.argsort(-gains) if gains[b] > _TOLERANCE]
        steps += found.steps
        if thorough or not master.add(improved):
            near = [b for b in range(len(bins)) if gains[b] > -_NEAR * prices[b]]
            closer, columns = _closer(items, bins, found, near, thorough)
            thorough += 1
            steps += closer
            enough = prices - current.discounts + _TOLERANCE
            improved += [c for c in columns if np.dot(found.worth, c.counts) > enough[c.bin]]
            failures = 0 if master.add(improved) else failures + 1
        current = master.solve(steps)
        if failures >= _ENOUGH_FAILURES or steps > most_steps:
            break
    return current


def _closer(
    items: Sequence[Item], bins: Sequence[Bin], found: Fillings, near: Sequence[int], round_: int
) -> tuple[int, list[Column]]:
    """Search longer among bins whose filling is nearly worth its price."""
    if not near:
        return 0, []
    closer = Fillings(items, [bins[b] for b in near], found.worth)
    closer.value, closer.counts = found.value[near], found.counts[:, near]
    for order in shaken(items, bins, found.worth, round_):
        closer.search(order)
    for _ in range(2):
        for order in orders(items, bins, found.worth):
            closer.refill(order)
    return closer.steps, [Column(b, _column(closer.counts, n).counts) for n, b in enumerate(near)]


def _column(counts: Ints, number: int) -> Column:
    return Column(int(number), tuple(counts[:, number].tolist()))


def _entries(rows: Sequence[int], values: Sequence[int]) -> tuple[Ints, Floats]:
    return np.array(rows, dtype=np.int32), np.array(values, dtype=np.float64)


def _starts(first: int, lengths: Iterable[int]) -> list[int]:
    found = []
    for length in lengths:
        found.append(first)
        first += length
    return found
