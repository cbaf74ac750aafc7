"""Buy for items of very many kinds: node after node, each with the lowest price for the worth of its contents.

Plans alternate between two methods: each node is the best of all, or the best for the item that is hardest to place.
The hardest items are those of which a node holds few, starting with those that need the most nodes; the largest items
follow.

Nodes bought early are filled best, and the last ones are left with items that do not suit each other. The cost of an
item in one plan therefore corrects its worth in the next one, so that such items are packed earlier. This is sequential
value correction: Mukhacheva, Belov, Kartack and Mukhacheva, "Linear one-dimensional cutting-packing problems: numerical
experiments with the sequential value correction method (SVC) and a modified branch-and-bound method (MBB)", Pesquisa
Operacional 20, 2000.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np

from nodesmith.decisions.packing.bound import even_prices
from nodesmith.decisions.packing.filling import Floats, Indices, ItemPool
from nodesmith.decisions.packing.problem import Bin, Holds, Item, Limits, RemainingLimits, Vector
from nodesmith.decisions.packing.reduction import admitted_by

_CHEAP_BINS, _LEAST_STEP = 3, 1.05
_FULL_BINS, _MOST_RANKED = 12, 24
_MOST_CLASSES = 100
_LEAST_WORTH = 1e-12
_Bought = tuple[Bin, Holds, int]
_Able = tuple[int, Indices, Floats]


class SequentialPlan(NamedTuple):
    """A plan: the nodes bought, the count of each item left, the remaining limits, and the steps that it took."""

    bought: Sequence[_Bought]
    left: Sequence[int]
    limits: Limits
    steps: int


def sequential_plans(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, most_steps: int
) -> Iterator[SequentialPlan]:
    """Yield different plans, without end. Each one buys until nothing fits, a limit is reached or its steps run out."""
    prices = np.array(even_prices(items, bins))
    worth = _worth(items, bins, prices)
    masks, scarce = sorted({b.admits for b in bins}), _scarce(items)
    for is_seeded in cycle((False, True)):
        pool, remaining = ItemPool(items, masks, prices, worth), RemainingLimits(limits)
        seeds = [*scarce, *pool.by_worth()]
        bought = _bought(pool, _BinIndex(bins, pool, remaining), most_steps, seeds, is_seeded)
        yield SequentialPlan(bought, pool.left.tolist(), remaining.limits, pool.steps)
        worth = (worth + pool.costs(bought)) / 2


def _bought(
    pool: ItemPool, index: _BinIndex, most_steps: int, seeds: Sequence[int], is_seeded: bool
) -> list[_Bought]:
    bought: list[_Bought] = []
    for seed in seeds if is_seeded else (None, *seeds):
        while (seed is None or pool.left[seed] > 0) and pool.steps < most_steps:
            choice = index.best(seed)
            if choice is None:
                break
            bought.append(index.buy(*choice))
    return bought


def _scarce(items: Sequence[Item]) -> list[int]:
    """Return the items of which a node holds few, ordered by the nodes they need, then by size, both descending."""
    totals: dict[int, int] = {}
    for item in items:
        for group in item.groups:
            totals[group] = totals.get(group, 0) + item.count
    nodes: dict[int, float] = {}
    for number, item in enumerate(items):
        needed = [totals[g] / most for g, most in item.caps if g in item.groups and 0 < most < totals[g]]
        if item.per_node < item.count:
            needed.append(item.count / item.per_node)
        if needed:
            nodes[number] = max(needed)
    return sorted(nodes, key=lambda number: (-nodes[number], tuple(-s for s in items[number].size), number))


def _worth(items: Sequence[Item], bins: Sequence[Bin], prices: Floats) -> Floats:
    """Return what each item costs in the bins that admit it; items that the same bins admit are valued together.

    Items that only expensive bins admit are worth what they cost in those bins. If there are too many such classes,
    `prices` determine the worth of all items.
    """
    masks = sorted({b.admits for b in bins})
    classes: dict[tuple[str, ...], list[int]] = {}
    for number, signature in enumerate(admitted_by(len(items), masks)):
        classes.setdefault(signature, []).append(number)
    worth: Floats = prices @ np.array([item.size for item in items], dtype=np.float64).T
    for signature, members in classes.items() if len(classes) <= _MOST_CLASSES else ():
        admitting = {mask for mask, bit in zip(masks, signature, strict=True) if bit == "1"}
        class_prices = even_prices([items[n] for n in members], [b for b in bins if b.admits in admitting])
        worth[members] = np.array([items[n].size for n in members], dtype=np.float64) @ np.array(class_prices)
    return worth


class _BinIndex:
    """The bins, by the items they admit and in order of price."""

    def __init__(self, bins: Sequence[Bin], pool: ItemPool, remaining: RemainingLimits) -> None:
        self._pool, self._remaining = pool, remaining
        self._bins: dict[int, list[Bin]] = {}
        for bin_ in sorted(bins, key=lambda b: (b.price, b.key)):
            self._bins.setdefault(bin_.admits, []).append(bin_)
        self._capacities = {
            mask: np.array([b.capacity for b in group], dtype=np.float64)
            for mask, group in self._bins.items()
        }
        self._prices = {mask: np.array([b.price for b in group]) for mask, group in self._bins.items()}

    def best(self, seed: int | None) -> _Bought | None:
        """Return the node with the lowest price for the worth of its contents, how often to buy it, and its contents.

        The node holds item `seed` if that is given. The result is None if no bin holds it, or any item.
        """
        able = list(self._able(seed))
        cheap = () if seed is None else self._cheap(able)
        candidates = list(dict.fromkeys((*cheap, *self._full(able))))
        if not candidates:
            return None
        best: tuple[float, float, str] | None = None
        chosen: _Bought | None = None
        for candidate, holds in zip(candidates, self._pool.fill(candidates, seed), strict=True):
            if not holds:
                continue
            rank = candidate.price / self._pool.value(holds), candidate.price, candidate.key
            if best is None or rank < best:
                best, chosen = rank, (candidate, holds, self._pool.repeats(holds))
        return chosen

    def _cheap(self, holding: Iterable[_Able]) -> Sequence[Bin]:
        """Return a few bins, in order of price, of the mask with the cheapest bin.

        Among masks with equally cheap bins, it is the one that admits most of the items left.
        """
        choices: list[tuple[float, float, int, list[Bin]]] = []
        for mask, able, waiting in holding:
            group = self._bins[mask]
            affordable = (group[n] for n in able.tolist() if self._remaining.affords(group[n]))
            steps = list(_steps(affordable))
            if steps:
                choices.append((steps[0].price, -float(waiting @ self._pool.prices), mask, steps))
        return min(choices)[3] if choices else ()

    def _full(self, holding: Iterable[_Able]) -> Sequence[Bin]:
        """Return the bins that would hold the most worth for their price if they were completely filled."""
        choices: list[tuple[float, float, str, Bin]] = []
        for mask, able, waiting in holding:
            value = np.minimum(self._capacities[mask][able], waiting) @ self._pool.prices
            ranks = self._prices[mask][able] / np.maximum(value, _LEAST_WORTH)
            for place in np.argsort(ranks, kind="stable")[:_MOST_RANKED].tolist():
                candidate = self._bins[mask][able[place]]
                if self._remaining.affords(candidate):
                    choices.append(
                        (float(ranks[place]), -float(waiting @ self._pool.prices), candidate.key, candidate)
                    )
        alike: dict[tuple[float, Vector], Bin] = {}
        for *_, candidate in sorted(choices):
            alike.setdefault((candidate.price, candidate.capacity), candidate)
        return list(alike.values())[:_FULL_BINS]

    def _able(self, seed: int | None) -> Iterator[_Able]:
        """Yield for each mask that admits `seed` the mask, the bins that hold it, and the size of the items left.

        The size is the total over the items that the mask admits. Without a seed, these are all masks and bins.
        """
        for mask, capacities in self._capacities.items():
            admits = self._pool.admits[mask]
            if seed is None:
                yield mask, np.arange(len(capacities)), self._pool.size @ (self._pool.left * admits)
            elif admits[seed]:
                able = np.flatnonzero((capacities >= self._pool.size[:, seed]).all(axis=1))
                yield mask, able, self._pool.size @ (self._pool.left * admits)

    def buy(self, candidate: Bin, holds: Holds, repeats: int) -> _Bought:
        """Buy this bin, or a cheaper one that holds the same items."""
        cheaper = self._cheapest(candidate, holds)
        number = min(repeats, self._remaining.affords(cheaper))
        self._remaining.spend(cheaper, number)
        self._pool.take(holds, number)
        return cheaper, holds, number

    def _cheapest(self, candidate: Bin, holds: Holds) -> Bin:
        held = [item for item, _ in holds]
        counts = np.array([number for _, number in holds])
        size = self._pool.size[:, held] @ counts
        for mask, group in self._bins.items():
            if self._pool.admits[mask][held].all():
                for n in np.flatnonzero((self._capacities[mask] >= size).all(axis=1)).tolist():
                    if group[n].price >= candidate.price:
                        break
                    if self._remaining.affords(group[n]):
                        candidate = group[n]
                        break
        return candidate


def _steps(bins: Iterable[Bin]) -> Iterator[Bin]:
    """Yield the first few of these bins, each dearer than the last one by at least a factor.

    The bins must come in order of price.
    """
    last, number = 0.0, 0
    for candidate in bins:
        if candidate.price >= last * _LEAST_STEP:
            yield candidate
            last, number = candidate.price, number + 1
            if number == _CHEAP_BINS:
                break
