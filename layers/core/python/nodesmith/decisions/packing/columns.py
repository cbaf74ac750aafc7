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
_NEAR, _FAR = (
    0.06,
    0.25,
)  # of its price that a bin's filling lacks to be worth it: searched longer, or not for a while
_ALL_EVERY = 8
_PATIENCE, _LEAST_GAIN = 10, 1e-4
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

    @property
    def price(self) -> float:
        """What the last mix costs."""
        return float(self.solver.getInfo().objective_function_value)

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
    """Generate columns, from some that serve all, until neither search nor refilling finds a better one.

    Bins whose best filling is far from being worth its price are only looked at now and then.
    """
    master = Master(items, bins, purses)
    master.add(first)
    prices = np.array([b.price for b in bins])
    looked_at = everything = np.arange(len(bins))
    steps = failures = thorough = 0
    current = master.solve(steps)
    prices_seen = [master.price]
    for round_ in range(_MOST_ROUNDS):
        found = Fillings(items, [bins[b] for b in looked_at.tolist()], np.maximum(current.worth, 0.0))
        for order in orders(items, bins, found.worth):
            found.search(order)
        steps += found.steps
        enough = prices - current.discounts
        gains = found.value - enough[looked_at]
        added = master.add(
            _column(found.counts, n, looked_at[n]) for n in np.argsort(-gains) if gains[n] > _TOLERANCE
        )
        if not added and len(looked_at) < len(bins):
            looked_at = everything
            continue
        if thorough or not added:
            near = np.flatnonzero(gains > -_NEAR * prices[looked_at])
            closer, columns = _closer(items, bins, found, looked_at, near, thorough)
            thorough += 1
            steps += closer
            added += master.add(
                c for c in columns if np.dot(found.worth, c.counts) > enough[c.bin] + _TOLERANCE
            )
            failures = 0 if added else failures + 1
        current = master.solve(steps)
        prices_seen.append(master.price)
        has_stalled = prices_seen[-1] > prices_seen[-_PATIENCE:][0] * (1 - _LEAST_GAIN)
        if failures >= _ENOUGH_FAILURES or steps > most_steps or (round_ >= _PATIENCE and has_stalled):
            break
        is_due = round_ % _ALL_EVERY == _ALL_EVERY - 1
        looked_at = everything if is_due else looked_at[gains > -_FAR * prices[looked_at]]
    return current


def _closer(
    items: Sequence[Item],
    bins: Sequence[Bin],
    found: Fillings,
    looked_at: Ints,
    near: Ints,
    round_: int,
) -> tuple[int, list[Column]]:
    """Search longer among bins (`near` of those looked at) whose filling is nearly worth its price."""
    if not len(near):
        return 0, []
    closer = Fillings(items, [bins[b] for b in looked_at[near].tolist()], found.worth)
    closer.value, closer.counts = found.value[near], found.counts[:, near]
    for order in shaken(items, bins, found.worth, round_):
        closer.search(order)
    for _ in range(2):
        for order in orders(items, bins, found.worth):
            closer.refill(order)
    return closer.steps, [_column(closer.counts, n, b) for n, b in enumerate(looked_at[near])]


def _column(counts: Ints, place: int, bin_: int) -> Column:
    return Column(int(bin_), tuple(counts[:, place].tolist()))


def _entries(rows: Sequence[int], values: Sequence[int]) -> tuple[Ints, Floats]:
    return np.array(rows, dtype=np.int32), np.array(values, dtype=np.float64)


def _starts(first: int, lengths: Iterable[int]) -> list[int]:
    found = []
    for length in lengths:
        found.append(first)
        first += length
    return found
