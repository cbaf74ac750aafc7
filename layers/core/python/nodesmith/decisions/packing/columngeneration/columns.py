"""The cheapest fractional combination of patterns, by linear programming.

`mix` generates columns as Gilmore and Gomory do (1961): the dual prices of the master problem value each item, and
pricing looks for patterns that are worth more than their bin costs. Pricing is heuristic, so the objective value is the
price of a fractional plan, not a lower bound. `solve_all_patterns` serves problems with few enough patterns to list: it
is exact and yields a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import NamedTuple

import highspy
import numpy as np

from nodesmith.decisions.packing.columngeneration.patterns import Floats, Ints, Patterns, orders, perturbed
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
    """by limit, the saving by one more unit of each of its amounts, at least 0"""


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
        existing = set(self.columns)
        new = [c for c in dict.fromkeys(columns) if c not in existing and any(c.counts)]
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

    def ask(self, counts: Sequence[int], limits: Mapping[int, Vector]) -> None:
        """Change the counts of items to serve, and the remaining amounts of the limits."""
        for row, count in enumerate(counts):
            self.solver.changeRowBounds(row, float(count), highspy.kHighsInf)
        for limit, rows in self._limit_rows.items():
            for row, amount in zip(rows, limits[limit], strict=True):
                self.solver.changeRowBounds(row, -highspy.kHighsInf, float(max(0, amount)))

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
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("parallel", "off"), ("random_seed", 0)):
        highs.setOptionValue(option, value)
    return highs


def _entries(rows: Sequence[int], values: Sequence[int]) -> tuple[Ints, Floats]:
    return np.array(rows, dtype=np.int32), np.array(values, dtype=np.float64)


def _starts(first: int, lengths: Iterable[int]) -> list[int]:
    starts = []
    for length in lengths:
        starts.append(first)
        first += length
    return starts


_TOLERANCE = 1e-7
# Share of a bin's price that its best pattern falls short by: up to _NEAR search longer, beyond _FAR skip it for now.
_NEAR, _FAR = 0.06, 0.25
_ALL_EVERY, _MOST_BINS = 8, 150
_PATIENCE, _LEAST_GAIN = 10, 1e-4
_ENOUGH_FAILURES = 2
_MOST_ROUNDS = 80
_MOST_EXACT_ROUNDS = 60
_EXACT_TOLERANCE = 1e-9


def mix(
    items: Sequence[Item],
    bins: Sequence[Bin],
    limits: Mapping[int, Vector],
    first: Iterable[Column],
    most_steps: int,
) -> FractionalPlan:
    """Generate columns until pricing finds no better one, starting from `first`, which serve all items.

    A bin is priced only every few rounds if its best pattern is worth far less than its price. If there are very many
    bins, only those that come closest in a quick fill are priced.
    """
    master = Master(items, bins, limits)
    master.add(first)
    if len(master.columns) < len(items):  # so few columns would give a few items the worth of whole patterns
        master.add(_alone(items, bins))
    prices = np.array([b.price for b in bins])
    steps = failures = thorough = 0
    current = master.solve(steps)
    priced = _nearest(items, bins, current)
    is_fresh = True
    prices_seen = [master.price]
    for round_ in range(_MOST_ROUNDS):
        patterns = Patterns(items, [bins[b] for b in priced.tolist()], np.maximum(current.worth, 0.0))
        for order in orders(items, bins, patterns.worth):
            patterns.search(order)
        steps += patterns.steps
        enough = prices - current.discounts
        gains = patterns.value - enough[priced]
        added = master.add(
            _column(patterns.counts, n, priced[n]) for n in np.argsort(-gains) if gains[n] > _TOLERANCE
        )
        if not added and not is_fresh:
            priced, is_fresh = _nearest(items, bins, current), True
            continue
        if thorough or not added:
            near = np.flatnonzero(gains > -_NEAR * enough[priced])
            closer, columns = _closer(items, bins, patterns, priced, near, thorough)
            thorough += 1
            steps += closer
            added += master.add(
                c for c in columns if np.dot(patterns.worth, c.counts) > enough[c.bin] + _TOLERANCE
            )
            failures = 0 if added else failures + 1
        current = master.solve(steps)
        prices_seen.append(master.price)
        has_stalled = prices_seen[-1] > prices_seen[-_PATIENCE:][0] * (1 - _LEAST_GAIN)
        if failures >= _ENOUGH_FAILURES or steps > most_steps or (round_ >= _PATIENCE and has_stalled):
            break
        is_fresh = round_ % _ALL_EVERY == _ALL_EVERY - 1
        if is_fresh:
            priced = _nearest(items, bins, current)
        else:
            priced = priced[gains >= -_FAR * enough[priced]]
            is_fresh = len(priced) == len(bins)
            if not len(priced):
                priced, is_fresh = _nearest(items, bins, current), True
    return current


def _alone(items: Sequence[Item], bins: Sequence[Bin]) -> Iterator[Column]:
    """Yield for each item the cheapest nodes that hold nothing else: with these, no item is worth more than it costs.

    Dual prices that are too high for some items and 0 for others make no pattern look better for many rounds.
    """
    capacity = np.array([b.capacity for b in bins], dtype=np.int64)
    prices = np.array([b.price for b in bins])
    for place, item in enumerate(items):
        admits = np.array([b.admits >> place & 1 for b in bins], dtype=np.int64)
        size = np.array(item.size, dtype=np.int64)
        fitting = (capacity[:, size > 0] // size[size > 0]).min(axis=1, initial=item.count)
        number = np.minimum(fitting, item.most) * admits
        if number.any():
            chosen = int(np.where(number > 0, prices / np.maximum(number, 1), np.inf).argmin())
            counts = [0] * len(items)
            counts[place] = int(number[chosen])
            yield Column(chosen, tuple(counts))


def _nearest(items: Sequence[Item], bins: Sequence[Bin], mixed: FractionalPlan) -> Ints:
    """Return the numbers of the bins to price.

    These are all bins or, if there are too many, those with a quick fill worth the largest share of their price.
    """
    if len(bins) <= _MOST_BINS:
        return np.arange(len(bins))
    patterns = Patterns(items, bins, np.maximum(mixed.worth, 0.0))
    for order in orders(items, bins, patterns.worth):
        patterns.search(order, starts=())
    prices = np.array([b.price for b in bins]) - mixed.discounts
    share = patterns.value / np.maximum(prices, _TOLERANCE)
    return np.sort(np.argsort(-share, kind="stable")[:_MOST_BINS])


def _closer(
    items: Sequence[Item],
    bins: Sequence[Bin],
    patterns: Patterns,
    priced: Ints,
    near: Ints,
    round_: int,
) -> tuple[int, list[Column]]:
    """Search longer among the `near` bins: the `priced` bins for which the best pattern is nearly worth its price."""
    if not len(near):
        return 0, []
    closer = Patterns(items, [bins[b] for b in priced[near].tolist()], patterns.worth)
    closer.value, closer.counts = patterns.value[near], patterns.counts[:, near]
    for order in perturbed(items, bins, patterns.worth, round_):
        closer.search(order)
    for _ in range(2):
        for order in orders(items, bins, patterns.worth):
            closer.refill(order)
    return closer.steps, [_column(closer.counts, n, b) for n, b in enumerate(priced[near])]


def _column(counts: Ints, place: int, bin_: int) -> Column:
    return Column(int(bin_), tuple(counts[:, place].tolist()))


class AllPatterns(NamedTuple):
    """All patterns that some bin holds: counts (items × patterns), and the number and price of the cheapest bin."""

    counts: Ints
    bin: Ints
    price: Floats

    def column(self, number: int) -> Column:
        """Return pattern `number` as a column."""
        return Column(int(self.bin[number]), tuple(self.counts[:, number].tolist()))

    def near(self, worth: Floats, gap: float, most: int) -> list[Column]:
        """Return up to `most` patterns with a price that exceeds their worth by at most `gap`, smallest excess first.

        That excess is the reduced cost. If the price of a known plan exceeds the lower bound by `gap`, a cheaper plan
        contains no other patterns.
        """
        extra = self.price - worth @ self.counts
        order = np.argsort(extra, kind="stable")
        return [self.column(n) for n in order[extra[order] <= gap + _EXACT_TOLERANCE][:most].tolist()]


def all_patterns(items: Sequence[Item], bins: Sequence[Bin]) -> AllPatterns:
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
    return AllPatterns(counts[:, held], chosen[held], prices[chosen[held]])


def _may_share(items: Sequence[Item], counts: Ints) -> Ints:
    allowed = np.ones(counts.shape[1], dtype=bool)
    for number, item in enumerate(items):
        for group, most in item.caps:
            members = [n for n, other in enumerate(items) if group in other.groups]
            allowed &= (counts[number] == 0) | (counts[members].sum(axis=0) <= most)
    return np.flatnonzero(allowed)


def solve_all_patterns(
    items: Sequence[Item], bins: Sequence[Bin], patterns: AllPatterns, first: Iterable[Column]
) -> tuple[FractionalPlan, float]:
    """Return the cheapest fractional plan, ignoring limits, and the lower bound that it proves.

    No packing costs less than the worth of all items at the dual prices, times the minimum over all patterns of price
    per worth (Farley, 1990).
    """
    demand = np.array([item.count for item in items], dtype=np.float64)
    counts = patterns.counts.astype(np.float64)
    master = Master(items, bins, {})
    master.add(first)
    steps, bound = 0, 0.0
    mixed = master.solve(steps)
    for _ in range(_MOST_EXACT_ROUNDS):
        steps += counts.shape[1]
        worth = np.maximum(mixed.worth, 0.0) @ counts
        least = float((patterns.price / np.maximum(worth, _EXACT_TOLERANCE)).min(initial=1.0))
        bound = max(bound, least * float(np.maximum(mixed.worth, 0.0) @ demand))
        gains = worth - patterns.price
        order = np.argsort(-gains, kind="stable")
        _, best_of_bin = np.unique(patterns.bin[order], return_index=True)
        best = order[np.sort(best_of_bin)]
        if not master.add(patterns.column(n) for n in best[gains[best] > _EXACT_TOLERANCE].tolist()):
            break
        mixed = master.solve(steps)
    return mixed._replace(steps=steps), bound
