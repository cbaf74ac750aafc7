"""Many nodes filled at once: the same moves on every one of them, each as far as its own room and company allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.problem import Bin, Item

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_UNLIMITED = 2**31


class Batch:
    """Nodes (rows) being filled with items (columns of `counts`). Rooms, sizes and counts are whole numbers."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], starts: int = 1) -> None:
        """Open `starts` empty nodes of each bin: node n is of bin n % len(bins)."""
        groups = sorted({g for item in items for g in (*item.groups, *(g for g, _ in item.caps))})
        self._row = {group: row for row, group in enumerate(groups)}
        self._items = items
        nodes = len(bins) * starts
        self.room: Ints = np.tile(np.array([b.room for b in bins], dtype=np.int64), (starts, 1)).T.copy()
        admits = np.array([[b.admits >> i & 1 for b in bins] for i in range(len(items))], dtype=bool)
        self.admits = np.tile(admits, (1, starts))
        self.counts: Ints = np.zeros((len(items), nodes), dtype=np.int64)
        self.held: Ints = np.zeros((len(groups), nodes), dtype=np.int64)
        self.most: Ints = np.full((len(groups), nodes), _UNLIMITED, dtype=np.int64)

    def add(self, item: int, limit: Ints | int) -> None:
        """Put as many of an item into every node as fit, up to the limit (of all nodes, or of each) in all."""
        kind = self._items[item]
        count: Ints = np.minimum(limit, kind.per_node) - self.counts[item]
        for axis, size in enumerate(kind.size):
            if size:
                count = np.minimum(count, self.room[axis] // size)
        count = np.where(self.admits[item], count, 0)
        for group, most in kind.caps:
            spare = most - self.held[self._row[group]]
            count = np.minimum(count, spare) if group in kind.groups else np.where(spare < 0, 0, count)
        for group in kind.groups:
            row = self._row[group]
            count = np.minimum(count, self.most[row] - self.held[row])
        count = np.maximum(count, 0)
        self._take(kind, item, count)

    def _take(self, kind: Item, item: int, count: Ints) -> None:
        self.counts[item] += count
        for axis, size in enumerate(kind.size):
            if size:
                self.room[axis] -= count * size
        for group in kind.groups:
            self.held[self._row[group]] += count
        for group, most in kind.caps:
            row = self._row[group]
            self.most[row] = np.where(count > 0, np.minimum(self.most[row], most), self.most[row])

    def fill(self, order: Iterable[int], left: Sequence[int]) -> Batch:
        """Put in as many as fit of each item in turn."""
        for item in order:
            self.add(item, left[item])
        return self
