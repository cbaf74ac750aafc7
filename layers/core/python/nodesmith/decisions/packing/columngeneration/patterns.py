"""Fill many nodes at once: each operation applies to all of them, as far as each one's capacity and caps allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.problem import Bin, Item

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_UNLIMITED = 2**31
_ALL = slice(None)


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

    def fill(self, order: Iterable[int], left: Sequence[int]) -> Batch:
        """Add as many of each item as fit, in this order, up to the count that is `left`."""
        for item in order:
            self.add(item, left[item])
        return self
