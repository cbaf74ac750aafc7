"""Buy for items of many kinds but few classes: items of a class have the same size and may go into the same bins.

There are many kinds if items differ in their rules about sharing a node, yet these rules seldom decide what a node can
hold. Nodes are therefore chosen by class: a pattern is a count of each class, and is repeated as long as it suits the
items left. Each node is then filled with items of these classes that may share it. Only the largest group of items that
exclude each other is part of the choice: it determines how many nodes there must be, so each node is made large enough
for its share of all items left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.bound import even_prices
from nodesmith.decisions.packing.problem import Bin, Holds, Item, RemainingLimits, Sharing
from nodesmith.decisions.packing.reduction import ItemClass, item_classes

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Bools = NDArray[np.bool_]
_KINDS_A_CLASS = 2
_MOST_CLASSES = 400
_REPEATED = 3
"""A pattern is repeated for one in so many of the items left of its classes; more would use up what others need."""
_NEAR = (0.66, 0.82, 0.99, 1.1, 1.21, 1.38, 1.65)
"""The edges of price ranges, as multiples of a node's share; one bin of each range becomes a candidate."""
_RANGES = 6
_SMALL, _MANY = 8, 24
_NEARLY = 1.05
_DEAR = 1.1
_LEAST_WORTH = 1e-12
_Bought = tuple[Bin, Holds, int]


def pack_by_class(
    items: Sequence[Item], bins: Sequence[Bin], remaining: RemainingLimits, most_steps: int
) -> tuple[list[_Bought], list[int], int] | None:
    """Buy until nothing fits, the limits are reached or the steps run out.

    Return the nodes, the count of each item left, and the steps taken; None if there are too many classes, or if small
    nodes are so much cheaper that a node for each of the items that exclude each other should not hold more.
    """
    masks = sorted({b.admits for b in bins})
    classes = item_classes(items, masks)
    if len(classes) > min(_MOST_CLASSES, len(items) // _KINDS_A_CLASS):
        return None
    pool = _Pool(items, list(classes), list(classes.values()))
    index = _BinIndex(pool, bins, masks, remaining)
    if index.share_costs_more():
        return None
    buyer = _Buyer(pool, index, remaining)
    while pool.steps < most_steps:
        seed = pool.seed()
        if seed is None:
            break
        buyer.buy(seed)
    return buyer.bought, pool.left_of_items, pool.steps


class _Buyer:
    """The nodes that have been bought."""

    def __init__(self, pool: _Pool, index: _BinIndex, remaining: RemainingLimits) -> None:
        self._pool, self._index, self._remaining = pool, index, remaining
        self.bought: list[_Bought] = []

    def buy(self, seed: int) -> None:
        """Buy nodes around items of class `seed`; if none can be bought, give up the class."""
        before = len(self.bought)
        for pattern in self._index.patterns(seed):
            usual = self._index.cheapest(pattern, pattern @ self._pool.size)
            if usual is not None:
                self._repeat(seed, pattern, usual)
        if len(self.bought) == before:
            self._pool.left[seed] = 0

    def _repeat(self, seed: int, pattern: Indices, usual: Bin) -> None:
        """Buy nodes with this pattern until there are too few items that may share a node."""
        for _ in range(min(self._pool.repeats(pattern), self._remaining.affords(usual))):
            held, is_whole = self._pool.take(seed, pattern)
            if not held:
                break
            chosen = usual if is_whole else self._index.cheapest(pattern, self._pool.size_of(held)) or usual
            self._remaining.spend(chosen, 1)
            self.bought.append((chosen, tuple(sorted(held.items())), 1))
            if not is_whole:
                break


class _Pool:
    """The items left, by class. `worth` is the value of an item of each class."""

    def __init__(
        self, items: Sequence[Item], classes: Sequence[ItemClass], members: Sequence[Sequence[int]]
    ) -> None:
        self.classes, self._items = classes, items
        self._members = [list(numbers) for numbers in members]
        self.left_of_items = [item.count for item in items]
        self.left: Indices = np.array([sum(items[n].count for n in numbers) for numbers in members])
        self.size: Floats = np.array([item_class.size for item_class in classes], dtype=np.float64)
        self.alone: Bools = np.array([item_class.alone for item_class in classes])
        self.worth: Floats = np.zeros(len(classes))
        self.steps = 0
        self._order: list[int] = []

    def value(self, worth: Floats) -> None:
        """Set the worth of each class, and order the seeds by it; items that exclude each other come first."""
        self.worth = worth
        self._order = np.lexsort((-worth, ~self.alone)).tolist()[::-1]

    def seed(self) -> int | None:
        """Return the class to build the next node around; None if nothing is left."""
        while self._order and not self.left[self._order[-1]]:
            self._order.pop()
        return self._order[-1] if self._order else None

    def repeats(self, pattern: Indices) -> int:
        """Return how often to repeat a pattern."""
        (held,) = pattern.nonzero()
        number = min(self.left[held] // pattern[held])
        return -(-int(number) // _REPEATED)

    def take(self, seed: int, pattern: Indices) -> tuple[dict[int, int], bool]:
        """Take items of these classes that may share a node.

        Return their numbers and counts, and whether they complete the pattern.

        Nothing is taken if no item of class `seed` may go into a node.
        """
        sharing, held, is_whole = Sharing(), dict[int, int](), True
        others = [class_number for class_number in pattern.nonzero()[0].tolist() if class_number != seed]
        for class_number in (seed, *others):
            need = int(pattern[class_number])
            for number, count in sharing.joining(
                self._members[class_number], self._items, self.left_of_items, need
            ):
                held[number] = count
                self.left_of_items[number] -= count
                need -= count
            if not held:
                break
            self.left[class_number] -= int(pattern[class_number]) - need
            is_whole &= not need
            self._members[class_number] = [n for n in self._members[class_number] if self.left_of_items[n]]
        return held, is_whole

    def size_of(self, held: Mapping[int, int]) -> Floats:
        """Return the total size of these items."""
        counts = np.array(list(held.values()))
        return counts @ np.array([self._items[number].size for number in held], dtype=np.float64)


class _BinIndex:
    """The bins, by the items they admit and in order of price."""

    def __init__(
        self, pool: _Pool, bins: Sequence[Bin], masks: Sequence[int], remaining: RemainingLimits
    ) -> None:
        self._pool, self._remaining = pool, remaining
        self._holding: dict[tuple[int, int], Indices] = {}
        self._bins: list[list[Bin]] = [[] for _ in masks]
        places = {mask: place for place, mask in enumerate(masks)}
        for bin_ in sorted(bins, key=lambda b: (b.price, b.key)):
            self._bins[places[bin_.admits]].append(bin_)
        self._capacity = [np.array([b.capacity for b in same], dtype=np.float64) for same in self._bins]
        self._price = [np.array([b.price for b in same]) for same in self._bins]
        self.admits: Bools = np.array(
            [
                [item_class.admitted[place] == "1" for item_class in pool.classes]
                for place in range(len(masks))
            ]
        )
        items_left = [
            Item(item_class.size, int(n), int(n))
            for item_class, n in zip(pool.classes, pool.left, strict=True)
        ]
        offers = zip(self._price, self._capacity, strict=True)
        are_alike = len({(price.tobytes(), capacity.tobytes()) for price, capacity in offers}) == 1
        self._prices: Floats = np.array(even_prices(items_left, self._bins[0] if are_alike else bins))
        pool.value(pool.size @ self._prices if are_alike else self._worth(items_left))
        self._average: Floats = pool.left @ pool.size / max(1, int(pool.left.sum()))
        self._axes = self._binding()
        self._size: Floats = pool.size[:, self._axes].T.copy()
        dearness = pool.worth / np.maximum(pool.size @ self._prices, _LEAST_WORTH)
        self._weighted: Floats = (pool.size * self._prices**2).T * dearness
        self._ratio = [
            price / np.maximum(capacity @ self._prices, _LEAST_WORTH)
            for price, capacity in zip(self._price, self._capacity, strict=True)
        ]

    def _worth(self, items: Sequence[Item]) -> Floats:
        """Return what an item of each class costs in the bins that admit it."""
        worth = self._pool.size @ self._prices
        alike: dict[tuple[str, ...], list[int]] = {}
        for number, item_class in enumerate(self._pool.classes):
            alike.setdefault(item_class.admitted, []).append(number)
        for admitted, numbers in alike.items():
            admitting = [
                b for same, bit in zip(self._bins, admitted, strict=True) if bit == "1" for b in same
            ]
            worth[numbers] = self._pool.size[numbers] @ np.array(
                even_prices([items[n] for n in numbers], admitting)
            )
        return worth

    def _binding(self) -> list[int]:
        """Return the axes that can limit a node: the first, and those of which some bin may have too little."""
        size, axes = self._pool.size, [0]
        total = self._pool.left @ size
        for axis in range(1, size.shape[1]):
            for capacity in self._capacity:
                number = capacity[:, 0] // max(1.0, size[:, 0].min())
                short = (number * size[:, axis].max() > capacity[:, axis]) & (capacity[:, axis] < total[axis])
                if short.any():
                    axes.append(axis)
                    break
        return axes

    def share_costs_more(self) -> bool:
        """Return whether nodes of the size of a share cost more for their capacity than some smaller ones.

        A share is the worth of all items left, divided by the number of items left that exclude each other.
        """
        pool = self._pool
        if not pool.alone.any():
            return False
        share = float(pool.left @ pool.worth) / int(pool.left[pool.alone].sum())
        least = pool.size[pool.alone].min(axis=0)
        smaller, near = [math.inf], [math.inf]
        for price, ratio, capacity in zip(self._price, self._ratio, self._capacity, strict=True):
            smaller += ratio[(price < share) & (capacity >= least).all(axis=1)].tolist()
            near += ratio[(price >= share * _NEAR[0]) & (price <= share * _NEAR[-1])].tolist()
        return min(near) > min(smaller) * _DEAR

    def patterns(self, seed: int) -> list[Indices]:
        """Return the patterns with an item of class `seed` that cost least for their worth.

        They are the best one, and patterns for other masks that are nearly as good.
        """
        chosen = self._candidates(seed)
        if not chosen:
            return []
        counts = self._filled(seed, chosen)
        prices = np.array([self._price[mask][place] for mask, place in chosen])
        ranks = prices / (counts @ self._pool.worth)
        order = ranks.argsort(kind="stable").tolist()
        most, masks, best_patterns = ranks[order[0]] * _NEARLY, set[int](), list[Indices]()
        for place in order:
            if ranks[place] > most:
                break
            if chosen[place][0] not in masks:
                masks.add(chosen[place][0])
                best_patterns.append(counts[place])
        return best_patterns

    def _candidates(self, seed: int) -> list[tuple[int, int]]:
        """Return a few bins for a node around an item of class `seed`, as numbers of masks and places in their orders.

        As long as items that exclude each other are left, their nodes share all items left.
        """
        pool, candidates = self._pool, list[tuple[int, int]]()
        number, total = int(pool.left[pool.alone].sum()), float(pool.left @ pool.worth)
        for mask, price in enumerate(self._price):
            able = self._able(mask, seed) if self.admits[mask, seed] else _NOWHERE
            if not len(able):
                continue
            least, most = float(price[able[0]]), float(price[able[-1]])
            edges = np.array(_NEAR) * (total / number) if pool.alone[seed] else _NO_EDGES
            if not pool.alone[seed] or edges[0] > most:
                edges = np.geomspace(least, max(least, min(most, total)) * _NEAR[-1], _RANGES + 1)
            ends = np.searchsorted(price[able], edges).tolist()
            ranges = [able[start:end] for start, end in pairwise(ends) if start < end]
            ratio = self._ratio[mask]
            candidates += [
                (mask, int(in_range[ratio[in_range].argmin()])) for in_range in ranges or [able[:1]]
            ]
        if self._remaining.limits:
            candidates = [
                candidate
                for candidate in candidates
                if self._remaining.affords(self._bins[candidate[0]][candidate[1]])
            ]
            return candidates or self._first_affordable(seed)
        return candidates

    def _first_affordable(self, seed: int) -> list[tuple[int, int]]:
        """Return the cheapest bin of each mask that holds an item of class `seed` and that limits allow."""
        candidates = []
        for mask, same in enumerate(self._bins):
            able = self._able(mask, seed).tolist() if self.admits[mask, seed] else ()
            candidates += [(mask, n) for n in able if self._remaining.affords(same[n])][:1]
        return candidates

    def _able(self, mask: int, seed: int) -> Indices:
        """Return the bins of a mask that hold an item of class `seed`, in order of price."""
        able = self._holding.get((mask, seed))
        if able is None:
            able = (self._capacity[mask] >= self._pool.size[seed]).all(axis=1).nonzero()[0]
            self._holding[mask, seed] = able
        return able

    def _filled(self, seed: int, chosen: Sequence[tuple[int, int]]) -> Indices:
        """Fill an empty node of each of these bins, all at once, starting with a `seed`; return their patterns as rows.

        The next item of a node is the one that suits the remaining capacity best (see `filling`).
        """
        pool, rows = self._pool, np.arange(len(chosen))
        capacity = np.array([self._capacity[mask][place] for mask, place in chosen]) - pool.size[seed]
        counts: Indices = np.zeros((len(chosen), len(pool.left)), dtype=np.int64)
        counts[:, seed] = 1
        one_each = counts[:, seed].copy()
        allowed = self.admits[[mask for mask, _ in chosen]] & (pool.left > 0)
        if pool.alone[seed]:
            allowed &= ~pool.alone
        allowed[:, seed] &= pool.left[seed] > 1
        many = bool((capacity.max(axis=0) > self._average * _MANY)[self._axes].any())
        while True:
            for size, axis in zip(self._size, self._axes, strict=True):
                allowed &= size <= capacity[:, axis, None]
            suits = np.where(allowed, capacity @ self._weighted, -1.0)
            best = suits.argmax(axis=1)
            going = allowed[rows, best].nonzero()[0]
            if not len(going):
                return counts
            pool.steps += len(going)
            best = best[going]
            number = one_each[going]
            if many:
                number = self._number(best, capacity[going], pool.left[best] - counts[going, best])
            counts[going, best] += number
            capacity[going] -= pool.size[best] * number[:, None]
            allowed[going, best] = counts[going, best] < pool.left[best]

    def _number(self, best: Indices, capacity: Floats, left: Indices) -> Indices:
        """Return how many of each of these classes to add at once: one, or more if many fit."""
        fit = np.min(capacity // np.maximum(self._pool.size[best], 1.0), axis=1).astype(np.int64) // _SMALL
        number: Indices = np.maximum(1, np.minimum(left, fit))
        return number

    def cheapest(self, pattern: Indices, size: Floats) -> Bin | None:
        """Return the cheapest bin that holds items of the pattern's classes, of this total size, within the limits."""
        best: Bin | None = None
        classes = np.flatnonzero(pattern)
        for mask in np.flatnonzero(self.admits[:, classes].all(axis=1)).tolist():
            for place in np.flatnonzero((self._capacity[mask] >= size).all(axis=1)).tolist():
                candidate = self._bins[mask][place]
                if best is not None and (candidate.price, candidate.key) >= (best.price, best.key):
                    break
                if self._remaining.affords(candidate):
                    best = candidate
                    break
        return best


_NOWHERE: Indices = np.array([], dtype=np.int64)
_NO_EDGES: Floats = np.array([0.0])
