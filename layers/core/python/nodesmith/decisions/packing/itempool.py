"""A pool of items of very many kinds, from which one node after another is filled.

Each item is chosen for the capacity that is left: its score is the inner product of its size and the remaining
capacity, both valued in money (Panigrahy et al., "Heuristics for vector bin packing", 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.problem import Bin, Holds, Item

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
_LARGE_SHARE = 0.1
_SHARE_AT_ONCE = 0.5
_LEAST_WORTH = 1e-12
_UNLIMITED = 2**31
_NONE: Indices = np.array([], dtype=np.int64)
_Bools = NDArray[np.bool_]


class ItemPool:
    """Items left to pack. `prices` are those of a unit of each resource, `worth` is what one of each item costs."""

    def __init__(self, items: Sequence[Item], masks: Sequence[int], prices: Floats, worth: Floats) -> None:
        self.kinds = Kinds(items)
        self._sizes = [i.size for i in items]
        self._rows: Floats = np.array(self._sizes, dtype=np.float64)
        self.size: Floats = self._rows.T.copy()
        self.left: Indices = np.array([i.count for i in items])
        self.most: Indices = np.array([i.most for i in items])
        self.prices, self.worth = prices, worth
        self._dearness: Floats = worth / np.maximum(prices @ self.size, _LEAST_WORTH)
        spelled = {mask: f"{mask:0{len(items)}b}"[::-1].encode() for mask in masks}
        self.admits = {
            mask: np.frombuffer(bits, dtype=np.uint8) == ord("1") for mask, bits in spelled.items()
        }
        self._alive: dict[int, Indices] = {}
        self.steps = 0

    def fill(self, candidate: Bin, seed: int | None = None) -> tuple[float, Holds]:
        """Fill an empty node, starting with item `seed` if given; return the worth of its contents, and the contents.

        Each item is added as often as possible at once, so it is never considered again.
        """
        capacity = np.array(candidate.capacity, dtype=np.float64)
        held: dict[int, int] = {}
        self.kinds.empty()
        able = self._alive.get(candidate.admits)
        if able is None:
            able = np.flatnonzero((self.left > 0) & self.admits[candidate.admits])
            self._alive[candidate.admits] = able
        if seed is not None:
            self._place(seed, capacity, held)
            able = able[able != seed]
        size, placed = self._rows.take(able, axis=0).T, _NONE
        weights = self.prices * self.prices
        while True:
            joins = self._may_join(able, size, capacity)
            joins[placed] = False
            (rest,) = joins.nonzero()
            if not len(rest):
                break
            able, size = able[rest], size.T.take(rest, axis=0).T
            self.steps += 1
            suits = (weights * capacity) @ size * self._dearness[able]
            best = int(suits.argmax())
            if self._goes_alone(int(able[best]), capacity):
                self._place(int(able[best]), capacity, held)
                placed = np.array([best])
            else:
                placed = self._place_many(able, size, suits, capacity, held)
        content = tuple(sorted(held.items()))
        return fsum(self.worth[item] * number for item, number in content), content

    def take(self, holds: Holds, repeats: int) -> None:
        """Count what was bought as packed."""
        for item, number in holds:
            self.left[item] -= number * repeats
        self._alive.clear()

    def repeats(self, holds: Holds) -> int:
        """Return how many nodes with these contents the items left can fill."""
        return int(min(self.left[item] // number for item, number in holds))

    def _may_join(self, able: Indices, size: Floats, capacity: Floats) -> NDArray[np.bool_]:
        joins: NDArray[np.bool_] = size[0] <= capacity[0]
        for axis in range(1, len(capacity)):
            joins &= size[axis] <= capacity[axis]
        if self.kinds.ruled:
            joins &= ~self.kinds.blocked[self.kinds.of[able]]
        return joins

    def _goes_alone(self, item: int, capacity: Floats) -> bool:
        """Return whether the other items must be scored again after this one: it is large or subject to caps."""
        touchy = bool(self.kinds.touchy[self.kinds.of[item]])
        return touchy or bool(self.worth[item] > _LARGE_SHARE * (self.prices @ capacity))

    def _place(self, item: int, capacity: Floats, held: dict[int, int]) -> None:
        """Add as many of one item as possible."""
        number = min(int(self.left[item]), int(self.most[item]))
        for have, each in zip(capacity.tolist(), self._sizes[item], strict=True):
            if each * number > have:
                number = int(have // each)
        if self.kinds.ruled:
            kind = int(self.kinds.of[item])
            number = min(number, self.kinds.capacity(kind))
            self.kinds.add(kind, number)
        if number > 0:
            held[item] = number
            capacity -= number * self._rows[item]

    def _place_many(
        self, able: Indices, size: Floats, suits: Floats, capacity: Floats, held: dict[int, int]
    ) -> Indices:
        """Add the items with the best scores until half of the capacity is used; return their positions in `able`."""
        places = np.argsort(-suits, kind="stable")
        if self.kinds.ruled:
            places = places[~self.kinds.touchy[self.kinds.of[able[places]]]]
        items = able[places]
        counts = np.minimum(self.left[items], self.most[items])
        used = np.cumsum(size[:, places] * counts, axis=1)
        number = int((used <= capacity[:, None] * _SHARE_AT_ONCE).all(axis=0).sum())
        if not number:
            self._place(int(items[0]), capacity, held)
            return places[:1]
        capacity -= used[:, number - 1]
        held.update(zip(items[:number].tolist(), counts[:number].tolist(), strict=True))
        if self.kinds.ruled:
            totals = np.bincount(self.kinds.of[items[:number]], weights=counts[:number])
            for kind in np.flatnonzero(totals).tolist():
                self.kinds.add(kind, int(totals[kind]))
        return places[:number]


class Kinds:
    """Items with equal groups and caps are of one kind; `of` is the kind of each item.

    `blocked` marks the kinds that may not join the node in its present state. `touchy` marks the kinds that must be
    added one item at a time: they have caps, or are subject to a cap of something on the node.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        numbers: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], int] = {}
        self.of: Indices = np.array([numbers.setdefault((i.groups, i.caps), len(numbers)) for i in items])
        self._rules = list(numbers)
        members: dict[int, list[int]] = {}
        cappers: dict[int, list[tuple[int, int]]] = {}
        for kind, (groups, caps) in enumerate(self._rules):
            for group in groups:
                members.setdefault(group, []).append(kind)
            for group, most in caps:
                cappers.setdefault(group, []).append((kind, most - (group in groups)))
        self._members = {group: np.array(kinds) for group, kinds in members.items()}
        self._cappers = {
            group: (np.array([kind for kind, _ in each]), np.array([most for _, most in each]))
            for group, each in cappers.items()
        }
        self._strictest = {group: min(most for _, most in each) for group, each in cappers.items()}
        self._brings_caps: _Bools = np.array([bool(caps) for _, caps in self._rules])
        self._never: _Bools = np.array(
            [any(most < (group in groups) for group, most in caps) for groups, caps in self._rules]
        )
        self.ruled = bool(cappers)
        self.empty()

    def empty(self) -> None:
        """Start an empty node."""
        self._held: dict[int, int] = {}
        self._most: dict[int, int] = {}
        self.blocked, self.touchy = self._never.copy(), self._brings_caps.copy()

    def capacity(self, kind: int) -> int:
        """Return how many more of a kind may join."""
        groups, caps = self._rules[kind]
        spare = [most - self._held.get(group, 0) for group, most in caps if group in groups]
        spare += [self._most[group] - self._held.get(group, 0) for group in groups if group in self._most]
        return 0 if self.blocked[kind] else min(spare, default=_UNLIMITED)

    def add(self, kind: int, count: int) -> None:
        """Add some of a kind."""
        groups, caps = self._rules[kind]
        for group in groups:
            self._held[group] = self._held.get(group, 0) + count
        for group, most in caps:
            self._most[group] = min(most, self._most.get(group, most))
        for group in dict.fromkeys((*groups, *(group for group, _ in caps))):
            self._tell(group)

    def _tell(self, group: int) -> None:
        held, most = self._held.get(group, 0), self._most.get(group)
        if most is not None and group in self._members:
            self.touchy[self._members[group]] = True
            if held >= most:
                self.blocked[self._members[group]] = True
        if held > self._strictest.get(group, held):
            kinds, allowed = self._cappers[group]
            self.blocked[kinds[held > allowed]] = True
