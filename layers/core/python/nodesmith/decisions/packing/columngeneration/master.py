"""The master problem of column generation: the cheapest fractional combination of the known patterns.

A column is a pattern in one bin. The linear program buys columns, in fractions, so that every item is served and no
limit is exceeded. Its dual prices are what one more of each item would add to the price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import NamedTuple

import highspy
import numpy as np

from nodesmith.decisions.packing.columngeneration.patterns import Floats, Ints
from nodesmith.decisions.packing.problem import Bin, Item, Vector

_SERVED_AT_ANY_PRICE = 10.0


class Column(NamedTuple):
    """A pattern in bin number `bin`."""

    bin: int
    counts: Vector


class FractionalPlan(NamedTuple):
    """How often each column is bought, and the dual price of each item (`worth`)."""

    columns: tuple[Column, ...]
    amounts: Floats
    worth: Floats
    discounts: Floats
    """per bin, the dual value of the limit that one node uses, 0 or less: subtracting it makes the bin dearer"""
    steps: int
    scarcity: Mapping[int, tuple[float, ...]] = {}
    """by limit, what one more unit of each of its amounts would save, at least 0"""


class Master:
    """The master problem: a row per item, a row per amount of each limit, a column per pattern."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], limits: Mapping[int, Vector]) -> None:
        self._bins = bins
        self.columns: list[Column] = []
        self.solver = solver()
        for item in items:
            self.solver.addRow(float(item.count), highspy.kHighsInf, 0, *_entries([], []))
        used = sorted({b.limit for b in bins} & limits.keys())
        self._limit_rows = {
            limit: range(first, first + len(limits[limit]))
            for limit, first in zip(used, _starts(len(items), (len(limits[p]) for p in used)), strict=True)
        }
        for limit in used:
            for amount in limits[limit]:
                self.solver.addRow(-highspy.kHighsInf, float(max(0, amount)), 0, *_entries([], []))
        missing = _SERVED_AT_ANY_PRICE * max(b.price for b in bins)
        for row in range(len(items)):
            self.solver.addCol(missing, 0.0, highspy.kHighsInf, 1, *_entries([row], [1]))
        self._items = len(items)

    def add(self, columns: Iterable[Column]) -> int:
        """Add the columns that are not in the problem yet, and return their number."""
        known = set(self.columns)
        new = [c for c in dict.fromkeys(columns) if c not in known and any(c.counts)]
        for column in new:
            rows = [i for i, n in enumerate(column.counts) if n]
            values = [column.counts[i] for i in rows]
            bin_ = self._bins[column.bin]
            for row, cost in zip(self._limit_rows.get(bin_.limit, ()), bin_.cost, strict=False):
                rows.append(row)
                values.append(cost)
            self.solver.addCol(bin_.price, 0.0, highspy.kHighsInf, len(rows), *_entries(rows, values))
        self.columns += new
        return len(new)

    @property
    def price(self) -> float:
        """Price of the last solution."""
        return float(self.solver.getInfo().objective_function_value)

    def solve(self, steps: int) -> FractionalPlan:
        """Return the cheapest fractional plan of the columns added so far."""
        self.solver.run()
        solution = self.solver.getSolution()
        duals = np.array(solution.row_dual)
        discounts = [
            fsum(duals[row] * cost for row, cost in zip(rows, b.cost, strict=True)) if rows else 0.0
            for b, rows in ((b, self._limit_rows.get(b.limit, range(0))) for b in self._bins)
        ]
        amounts = np.array(solution.col_value)[self._items :]
        scarcity = {
            limit: tuple(max(0.0, -float(duals[row])) for row in rows)
            for limit, rows in self._limit_rows.items()
        }
        worth = duals[: self._items]
        return FractionalPlan(tuple(self.columns), amounts, worth, np.array(discounts), steps, scarcity)


def solver() -> highspy.Highs:
    """Return HiGHS, silent, single-threaded and with a fixed seed: the same input gives the same result."""
    made = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", 0)):
        made.setOptionValue(option, value)
    return made


def _entries(rows: Sequence[int], values: Sequence[int]) -> tuple[Ints, Floats]:
    return np.array(rows, dtype=np.int32), np.array(values, dtype=np.float64)


def _starts(first: int, lengths: Iterable[int]) -> list[int]:
    found = []
    for length in lengths:
        found.append(first)
        first += length
    return found
