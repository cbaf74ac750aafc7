"""Find, for every bin at once, a pattern that is worth more than the bin costs: the pricing of column generation.

An item is worth its dual price in the master problem. Greedy fills from many starts and in many orders find patterns;
the best are improved by removing items and filling again. None of this proves that no better pattern exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.problem import Bin, Item

Order = tuple[int, ...]
_LEAST_WORTH = 1e-12
_BETTER = 1e-9
_STARTS = (1, 2)
_REMOVALS = (1, 2, 2**20)
_BALANCES = (None, 0.0, 0.25, 0.5, 0.75, 1.0)
_GOLDEN = 0.6180339887498949
_SPREAD = 0.1
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_UNLIMITED = 2**31
_ALL = slice(None)


class Patterns:
    """The best pattern known of every bin: its `value`, and its `counts` (items × bins). `steps` counts fills."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], worth: Floats) -> None:
        self.items, self.bins, self.worth = items, bins, worth
        self.value: Floats = np.zeros(len(bins))
        self.counts: Ints = np.zeros((len(items), len(bins)), dtype=np.int64)
        self.left = [item.count for item in items]
        self.steps = 0
        self._empty = Empty(items, bins)

    def search(self, order: Order, starts: Sequence[int] = _STARTS) -> None:
        """Fill every bin in this order: once from empty, and once from each number in `starts` of each item."""
        nodes, rows = len(self.bins), 1 + len(starts) * len(order)
        batch = Batch(self._empty, self.worth, rows)
        for row, (item, number) in enumerate(((i, k) for i in order for k in starts), start=1):
            batch.add(item, min(number, self.left[item]), slice(row * nodes, (row + 1) * nodes))
        batch.fill(order, self.left)
        self._keep(batch, rows)

    def refill(self, order: Order) -> None:
        """Remove some of one item from the best patterns, then fill in this order without that item."""
        moves = [(i, k) for i in order if self.counts[i].any() for k in _REMOVALS]
        if not moves:
            return
        batch = Batch(self._empty, self.worth, len(moves))
        before = self.counts.copy()
        for item in order:
            batch.add(item, _limit(before[item], item, moves, before[item]).ravel())
        for item in order:
            full: Ints = np.full(len(self.bins), self.left[item], dtype=np.int64)
            batch.add(item, _limit(before[item], item, moves, full).ravel())
        self._keep(batch, len(moves))

    def _keep(self, batch: Batch, starts: int) -> None:
        nodes = len(self.bins)
        self.steps += starts * nodes
        values = batch.value.reshape(starts, nodes)
        row, column = values.argmax(axis=0), np.arange(nodes)
        value = values[row, column]
        better = value > self.value + _BETTER
        if better.any():
            self.value = np.where(better, value, self.value)
            counts = batch.counts.reshape(len(self.items), starts, nodes)[:, row, column]
            self.counts = np.where(better, counts, self.counts)


def _limit(before: Ints, item: int, moves: Sequence[tuple[int, int]], otherwise: Ints) -> Ints:
    """Return how many of an item each move (row) allows in each bin (column)."""
    removed = [number if moved == item else 0 for moved, number in moves]
    rows = [np.maximum(0, before - number) if number else otherwise for number in removed]
    return np.array(rows)


def orders(items: Sequence[Item], bins: Sequence[Bin], worth: Floats) -> list[Order]:
    """Return orders of the items by worth per size, for different weights of the resources."""
    return list(dict.fromkeys(_by_density(density, worth) for density in _densities(items, bins, worth)))


def perturbed(items: Sequence[Item], bins: Sequence[Bin], worth: Floats, round_: int) -> list[Order]:
    """Return such orders with every density perturbed a little, differently in every round."""
    numbers = np.arange(1, len(items) + 1) * _GOLDEN
    perturbed = []
    for number, density in enumerate(_densities(items, bins, worth), start=1):
        noise = numbers * (len(_BALANCES) * round_ + number) % 1.0
        perturbed.append(_by_density(density * (1 + _SPREAD * (noise - 0.5)), worth))
    return list(dict.fromkeys(perturbed))


def _densities(items: Sequence[Item], bins: Sequence[Bin], worth: Floats) -> Iterator[Floats]:
    mean = np.maximum(np.array([b.capacity for b in bins], dtype=np.float64).mean(axis=0), 1.0)
    shares = np.array([item.size for item in items], dtype=np.float64) / mean
    for balance in _BALANCES:
        weights = np.ones(len(mean))
        if balance is not None:
            weights[:] = 0.02
            weights[:2] += balance, 1 - balance
        yield worth / np.maximum(shares @ weights, _LEAST_WORTH)


def _by_density(density: Floats, worth: Floats) -> Order:
    return tuple(i for i in np.argsort(-density, kind="stable").tolist() if worth[i] > _LEAST_WORTH)


class Empty:
    """Empty nodes, one of each bin: the initial state of every batch."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin]) -> None:
        self.items = items
        self.capacity: Ints = np.array([b.capacity for b in bins], dtype=np.int64).T
        admits = [[b.admits >> i & 1 for b in bins] for i in range(len(items))]
        self.admits: NDArray[np.bool_] = np.array(admits, dtype=bool)
        groups = sorted({g for item in items for g in (*item.groups, *(g for g, _ in item.caps))})
        self.rows = {group: row for row, group in enumerate(groups)}


class Batch:
    """Nodes (columns) that are being filled with items (rows of `counts`), in integer capacities, sizes and counts."""

    def __init__(self, empty: Empty, worth: Floats, starts: int = 1) -> None:
        """Open `starts` empty nodes of each bin; node n is of bin n % bins. `value` is the worth of its items."""
        self._items, self._row, self._worth = empty.items, empty.rows, worth
        nodes = empty.capacity.shape[1] * starts
        self.capacity: Ints = np.tile(empty.capacity, (1, starts))
        self.admits = np.tile(empty.admits, (1, starts))
        self.counts: Ints = np.zeros((len(self._items), nodes), dtype=np.int64)
        self.held: Ints = np.zeros((len(self._row), nodes), dtype=np.int64)
        self.most: Ints = np.full((len(self._row), nodes), _UNLIMITED, dtype=np.int64)
        self.value: Floats = np.zeros(nodes)

    def add(self, item: int, limit: Ints | int, nodes: slice = _ALL) -> None:
        """Add as many of an item to these nodes as fit, up to a total of `limit` on each node.

        `limit` is one number for all nodes, or an array with one number for each.
        """
        kind = self._items[item]
        count: Ints = np.minimum(limit, kind.per_node) - self.counts[item, nodes]
        for axis, size in enumerate(kind.size):
            if size:
                count = np.minimum(count, self.capacity[axis, nodes] // size)
        count = np.where(self.admits[item, nodes], count, 0)
        for group, most in kind.caps:
            spare = most - self.held[self._row[group], nodes]
            count = np.minimum(count, spare) if group in kind.groups else np.where(spare < 0, 0, count)
        for group in kind.groups:
            row = self._row[group]
            count = np.minimum(count, self.most[row, nodes] - self.held[row, nodes])
        self._take(kind, item, np.maximum(count, 0), nodes)

    def _take(self, kind: Item, item: int, count: Ints, nodes: slice) -> None:
        self.counts[item, nodes] += count
        self.value[nodes] += count * self._worth[item]
        for axis, size in enumerate(kind.size):
            if size:
                self.capacity[axis, nodes] -= count * size
        for group in kind.groups:
            self.held[self._row[group], nodes] += count
        for group, most in kind.caps:
            row = self._row[group]
            held = self.most[row, nodes]
            self.most[row, nodes] = np.where(count > 0, np.minimum(held, most), held)

    def fill(self, order: Iterable[int], left: Sequence[int]) -> None:
        """Add as many of each item as fit, in this order, up to the count that is `left`."""
        for item in order:
            self.add(item, left[item])
