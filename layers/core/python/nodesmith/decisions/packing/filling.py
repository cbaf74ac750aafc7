"""Fill nodes with items: the next item of a node is the one that suits the remaining capacity best.

Its score is the inner product of its size and the remaining capacity, both valued in money (Panigrahy, Talwar, Uyeda
and Wieder, "Heuristics for vector bin packing", 2011).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.problem import Bin, Holds, Item, Vector

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_LARGE_SHARE = 0.1
_SHARE_AT_ONCE = 0.5
_LEAST_WORTH = 1e-12
_UNLIMITED = 2**31
_MOST_CONSIDERED = 500


class ItemPool:
    """Items left to pack. `prices` are per unit of each resource; `worth` is the value of one of each item."""

    def __init__(self, items: Sequence[Item], masks: Sequence[int], prices: Floats, worth: Floats) -> None:
        self.kinds = Kinds(items)
        self.sizes = [i.size for i in items]
        self.rows: Floats = np.array(self.sizes, dtype=np.float64)
        self.size: Floats = self.rows.T.copy()
        self.left: Indices = np.array([i.count for i in items])
        self.most: Indices = np.array([i.most for i in items])
        self.prices, self.worth = prices, worth
        self.price_factor: Floats = worth / np.maximum(prices @ self.size, _LEAST_WORTH)
        spelled = {mask: f"{mask:0{len(items)}b}"[::-1].encode() for mask in masks}
        self.admits = {
            mask: np.frombuffer(bits, dtype=np.uint8) == ord("1") for mask, bits in spelled.items()
        }
        self.steps = 0
        self._contents: dict[tuple[Vector, int, int | None], Holds] = {}

    def fill(self, candidates: Sequence[Bin], seed: int | None) -> list[Holds]:
        """Fill an empty node of each of these bins, starting with item `seed` if given, and return their contents.

        The nodes are independent of each other; filling them at once is faster. Each item is added to a node as often
        as possible at once, so it is considered for a node only once. A node that was filled before gets the same
        contents again as long as these items are left.
        """
        keys = [(c.capacity, c.admits, seed) for c in candidates]
        by_key = dict(zip(keys, candidates, strict=True))
        changed = {key: c for key, c in by_key.items() if not self._is_left(self._contents.get(key))}
        if changed:
            filling = _Filling(self, list(changed.values()), seed)
            while filling.narrow():
                filling.add()
            self._contents.update(zip(changed, filling.contents(), strict=True))
        self.steps += len(by_key) - len(changed)
        return [self._contents[key] for key in keys]

    def _is_left(self, holds: Holds | None) -> bool:
        return holds is not None and all(self.left[item] >= number for item, number in holds)

    def sample(self, waiting: _Bools) -> Indices:
        """Return the numbers of the items to choose from: all waiting ones or, if very many wait, an even sample."""
        (able,) = waiting.nonzero()
        return able[:: -(-len(able) // _MOST_CONSIDERED) or 1]

    def by_worth(self) -> list[int]:
        """Return the numbers of the items, the most valuable first."""
        order: list[int] = np.argsort(-self.worth, kind="stable").tolist()
        return order

    def costs(self, bought: Iterable[tuple[Bin, Holds, int]]) -> Floats:
        """Return the cost of one of each item if the items of each node share its price in proportion to their worth.

        Items that no node holds cost as much as they are worth.
        """
        cost, packed = np.zeros(len(self.worth)), np.zeros(len(self.worth))
        for candidate, holds, repeats in bought:
            factor = candidate.price / self.value(holds)
            for item, count in holds:
                cost[item] += factor * self.worth[item] * count * repeats
                packed[item] += count * repeats
        mean_cost: Floats = np.where(packed > 0, cost / np.maximum(packed, 1), self.worth)
        return mean_cost

    def value(self, holds: Holds) -> float:
        """Return the worth of the contents of a node, which is never 0."""
        return max(_LEAST_WORTH, fsum(self.worth[item] * number for item, number in holds))

    def take(self, holds: Holds, repeats: int) -> None:
        """Subtract the contents of these nodes from the items left."""
        for item, number in holds:
            self.left[item] -= number * repeats

    def repeats(self, holds: Holds) -> int:
        """Return how many nodes with these contents the items left can fill."""
        return int(min(self.left[item] // number for item, number in holds))


class _Filling:
    """Nodes that are filled at the same time, as rows, and the items that may still join them, as columns."""

    def __init__(self, pool: ItemPool, candidates: Sequence[Bin], seed: int | None) -> None:
        self._pool, number = pool, len(candidates)
        self._capacity: Floats = np.array([c.capacity for c in candidates], dtype=np.float64)
        self._blocked: _Bools = np.tile(pool.kinds.never, (number, 1))
        restricted = np.tile(pool.kinds.brings_caps, (number, 1))
        self._nodes = [
            _Node(pool, row, _NodeRules(pool.kinds, *marks) if pool.kinds.ruled else None)
            for row, *marks in zip(self._capacity, self._blocked, restricted, strict=True)
        ]
        waiting: _Bools = pool.left > 0
        if seed is not None:
            waiting[seed] = False
            for node in self._nodes:
                node.place(seed)
        self._able = able = pool.sample(waiting)
        self._size: Floats = pool.rows.take(able, axis=0).T
        self._kinds, self._price_factor = pool.kinds.of[able], pool.price_factor[able]
        self._rows: Indices = np.arange(number)
        self._allowed: _Bools = np.array([pool.admits[c.admits][able] for c in candidates])
        self._weights = pool.prices * pool.prices

    def narrow(self) -> bool:
        """Exclude full nodes and items that no longer fit anywhere; return whether any node is left."""
        for axis, sizes in enumerate(self._size):
            self._allowed &= sizes <= self._capacity[self._rows, axis, None]
        if self._pool.kinds.ruled:
            self._allowed &= ~self._blocked[self._rows].take(self._kinds, axis=1)
        going = self._allowed.any(axis=1)
        if not going.all():
            self._rows, self._allowed = self._rows[going], self._allowed[going]
        joins = self._allowed.any(axis=0)
        if 2 * np.count_nonzero(joins) < len(self._able):
            self._able, self._allowed = self._able[joins], self._allowed[:, joins]
            self._size, self._kinds = self._size[:, joins], self._kinds[joins]
            self._price_factor = self._price_factor[joins]
        return bool(len(self._rows))

    def add(self) -> None:
        """Add to each node the item that suits its remaining capacity best, or several items if they are small."""
        capacity = self._capacity[self._rows]
        suits = np.where(self._allowed, ((self._weights * capacity) @ self._size) * self._price_factor, -1.0)
        self._pool.steps += len(self._rows)
        choices = zip(self._rows.tolist(), suits.argmax(axis=1).tolist(), strict=True)
        worth = (capacity @ self._pool.prices).tolist()
        for place, (row, best) in enumerate(choices):
            node, item = self._nodes[row], int(self._able[best])
            if node.takes_alone(item, worth[place]):
                node.place(item)
                self._allowed[place, best] = False
            else:
                self._allowed[place, node.place_many(self._able, self._size, suits[place])] = False

    def contents(self) -> list[Holds]:
        """Return the contents of each node."""
        return [tuple(sorted(node.held.items())) for node in self._nodes]


class _Node:
    """A node that is being filled: the remaining `capacity`, and the count of each item that it holds."""

    def __init__(self, pool: ItemPool, capacity: Floats, rules: _NodeRules | None) -> None:
        self._pool, self._capacity, self._rules = pool, capacity, rules
        self.held: dict[int, int] = {}

    def takes_alone(self, item: int, worth: float) -> bool:
        """Return whether the other items must be scored again after this one: it is large or subject to caps.

        `worth` is that of the remaining capacity.
        """
        restricted = self._rules is not None and self._rules.is_restricted(item)
        return restricted or bool(self._pool.worth[item] > _LARGE_SHARE * worth)

    def place(self, item: int) -> None:
        """Add as many of one item as possible."""
        pool = self._pool
        number = min(int(pool.left[item]), int(pool.most[item]))
        size = pool.sizes[item]
        for available, needed in zip(self._capacity.tolist(), size, strict=True):
            if needed * number > available:
                number = int(available // needed)
        if self._rules is not None:
            number = self._rules.add(item, number)
        if number > 0:
            self.held[item] = number
            self._capacity -= [number * needed for needed in size]

    def place_many(self, able: Indices, size: Floats, suits: Floats) -> Indices:
        """Add the items with the best scores until half of the capacity is used; return their positions in `able`."""
        pool, rules = self._pool, self._rules
        places = np.argsort(-suits, kind="stable")[: np.count_nonzero(suits >= 0.0)]
        if rules is not None:
            places = places[~rules.restricted[pool.kinds.of[able[places]]]]
        items = able[places]
        counts = np.minimum(pool.left[items], pool.most[items])
        used = np.cumsum(size[:, places] * counts, axis=1)
        number = int((used <= self._capacity[:, None] * _SHARE_AT_ONCE).all(axis=0).sum())
        if not number:
            self.place(int(items[0]))
            return places[:1]
        self._capacity -= used[:, number - 1]
        self.held.update(zip(items[:number].tolist(), counts[:number].tolist(), strict=True))
        if rules is not None:
            rules.add_many(items[:number], counts[:number])
        return places[:number]


class Kinds:
    """Items with equal groups and caps are of one kind; `of` is the kind of each item.

    `never` marks the kinds that may go on no node, and `brings_caps` those with caps.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        numbers: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], int] = {}
        self.of: Indices = np.array([numbers.setdefault((i.groups, i.caps), len(numbers)) for i in items])
        self.rules = list(numbers)
        members: dict[int, list[int]] = {}
        cappers: dict[int, list[tuple[int, int]]] = {}
        for kind, (groups, caps) in enumerate(self.rules):
            for group in groups:
                members.setdefault(group, []).append(kind)
            for group, most in caps:
                cappers.setdefault(group, []).append((kind, most - (group in groups)))
        self.members = {group: np.array(kinds) for group, kinds in members.items()}
        self.cappers = {
            group: (np.array([kind for kind, _ in entries]), np.array([most for _, most in entries]))
            for group, entries in cappers.items()
        }
        self.strictest = {group: min(most for _, most in entries) for group, entries in cappers.items()}
        self.brings_caps: _Bools = np.array([bool(caps) for _, caps in self.rules])
        self.never: _Bools = np.array(
            [any(most < (group in groups) for group, most in caps) for groups, caps in self.rules]
        )
        self.ruled = bool(cappers)


class _NodeRules:
    """The items that the rules of kinds allow on one node.

    `blocked` marks the kinds that may not join the node in its present state. `restricted` marks the kinds that must be
    added one item at a time: they have caps, or are subject to a cap of something on the node.
    """

    def __init__(self, kinds: Kinds, blocked: _Bools, restricted: _Bools) -> None:
        self._kinds, self._blocked, self.restricted = kinds, blocked, restricted
        self._held: dict[int, int] = {}
        self._most: dict[int, int] = {}

    def is_restricted(self, item: int) -> bool:
        """Return whether an item must be added alone."""
        return bool(self.restricted[self._kinds.of[item]])

    def add(self, item: int, count: int) -> int:
        """Add as many of an item as the rules allow, up to `count`, and return that number."""
        kind = int(self._kinds.of[item])
        count = max(0, min(count, self._capacity(kind)))
        self._add(kind, count)
        return count

    def add_many(self, items: Indices, counts: Indices) -> None:
        """Add items that are not restricted."""
        totals = np.bincount(self._kinds.of[items], weights=counts)
        for kind in np.flatnonzero(totals).tolist():
            self._add(kind, int(totals[kind]))

    def _capacity(self, kind: int) -> int:
        groups, caps = self._kinds.rules[kind]
        spare = [most - self._held.get(group, 0) for group, most in caps if group in groups]
        spare += [self._most[group] - self._held.get(group, 0) for group in groups if group in self._most]
        return 0 if self._blocked[kind] else min(spare, default=_UNLIMITED)

    def _add(self, kind: int, count: int) -> None:
        groups, caps = self._kinds.rules[kind]
        for group in groups:
            self._held[group] = self._held.get(group, 0) + count
        for group, most in caps:
            self._most[group] = min(most, self._most.get(group, most))
        for group in dict.fromkeys((*groups, *(group for group, _ in caps))):
            self._mark(group)

    def _mark(self, group: int) -> None:
        held, most = self._held.get(group, 0), self._most.get(group)
        if most is not None and group in self._kinds.members:
            self.restricted[self._kinds.members[group]] = True
            if held >= most:
                self._blocked[self._kinds.members[group]] = True
        if held > self._kinds.strictest.get(group, held):
            kinds, allowed = self._kinds.cappers[group]
            self._blocked[kinds[held > allowed]] = True
