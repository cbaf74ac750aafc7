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

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np

from nodesmith.decisions.packing.bound import even_prices
from nodesmith.decisions.packing.filling import Floats, Indices, ItemPool
from nodesmith.decisions.packing.problem import Bin, Holds, Item, Limits, RemainingLimits, Vector
from nodesmith.decisions.packing.reduction import admitted_by

_MOST_FILLED, _FILLED_AT_ONCE = 12, 6
_STEP_SIZE = 2000
"""How many items, counted once for each way to weigh them, take a step of work to look at."""
_EMPHASIS = 4.0
"""How much more one resource counts in some ways to weigh them."""
_MOST_CLASSES = 100
_LEAST_WORTH = 1e-12
_Bought = tuple[Bin, Holds, int]


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
        self._bounds = {mask: _WorthBounds(pool, mask, each) for mask, each in self._capacities.items()}
        self._prices = {mask: np.array([b.price for b in group]) for mask, group in self._bins.items()}

    def best(self, seed: int | None) -> _Bought | None:
        """Return the node with the lowest price for the worth of its contents, how often to buy it, and its contents.

        The node holds item `seed` if that is given. The result is None if no bin holds it, or any item. Bins are filled
        in the order of a lower bound of the ratio until none can be better, or many have been filled.
        """
        best: tuple[float, float, str] | None = None
        chosen: _Bought | None = None
        promising = self._promising(seed)
        for first in range(0, len(promising), _FILLED_AT_ONCE):
            batch = promising[first : first + _FILLED_AT_ONCE]
            candidates = [candidate for least, candidate in batch if best is None or least < best[0]]
            if not candidates:
                break
            for candidate, holds in zip(candidates, self._pool.fill(candidates, seed), strict=True):
                if not holds:
                    continue
                rank = candidate.price / self._pool.value(holds), candidate.price, candidate.key
                if best is None or rank < best:
                    best, chosen = rank, (candidate, holds, self._pool.repeats(holds))
        return chosen

    def _promising(self, seed: int | None) -> list[tuple[float, Bin]]:
        """Return the bins with the lowest bounds of price for worth, with these bounds, in ascending order.

        Among equal bins, it is the one that admits most of the items left.
        """
        masks = sorted(self._bins, key=lambda mask: -self._bounds[mask].waiting())
        bins = [bin_ for mask in masks for bin_ in self._bins[mask]]
        most = np.concatenate([self._bounds[mask].most(seed) for mask in masks])
        least = np.concatenate([self._prices[mask] for mask in masks]) / np.maximum(most, _LEAST_WORTH)
        promising: dict[tuple[float, Vector], tuple[float, Bin]] = {}
        for n in np.argsort(least, kind="stable").tolist():
            if most[n] <= 0.0 or len(promising) == _MOST_FILLED:
                break
            candidate = bins[n]
            if self._remaining.affords(candidate):
                promising.setdefault((candidate.price, candidate.capacity), (float(least[n]), candidate))
        return list(promising.values())

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


class _WorthBounds:
    """Upper bounds of the worth of the items left that nodes can hold, for the bins with one mask.

    Capacities and sizes are weighed into one number in a few ways: each resource alone, the money they cost, and that
    with one resource counting more. Each way relaxes the problem to a knapsack (Glover, "Surrogate constraints",
    Operations Research 16, 1968), whose fractional optimum takes the items with the most worth for their size
    (Dantzig, "Discrete-variable extremum problems", Operations Research 5, 1957). The bound is the least of these.
    """

    def __init__(self, pool: ItemPool, mask: int, capacities: Floats) -> None:
        self._pool, self._capacities, self._admits = pool, capacities, pool.admits[mask]
        admitted = np.flatnonzero(self._admits)
        self._even_worth: Floats = (pool.rows @ pool.prices) * self._admits
        self._weights = weights = _weights(pool.prices, pool.rows[admitted])
        self._available: Floats = weights @ capacities.T
        size = weights @ pool.size[:, admitted]
        worth = np.broadcast_to(pool.worth[admitted], size.shape)
        density = np.full(size.shape, np.inf)
        np.divide(worth, size, out=density, where=size > 0)
        order = np.argsort(-density, axis=1, kind="stable")
        self._items: Indices = admitted[order]
        self._size, self._worth = (np.take_along_axis(each, order, axis=1) for each in (size, worth))
        # No item follows the last one.
        self._density: Floats = np.pad(np.take_along_axis(density, order, axis=1), ((0, 0), (0, 1)))

    def waiting(self) -> float:
        """Return the worth of all items left at even prices."""
        return float(self._pool.left @ self._even_worth)

    def most(self, seed: int | None) -> Floats:
        """Return a bound for each bin; 0 for those that do not hold item `seed`, if that is given."""
        pool, available, worth = self._pool, self._available, 0.0
        if seed is not None:
            if not self._admits[seed]:
                return np.zeros(len(self._capacities))
            worth = float(pool.worth[seed])
            available = available - (self._weights @ pool.size[:, seed])[:, None]
        pool.steps += self._items.size // _STEP_SIZE
        counts = np.minimum(pool.left, pool.most)[self._items]
        used, held = _totals(counts * self._size), _totals(counts * self._worth)
        bounds = np.full(len(self._capacities), np.inf)
        for n, capacity in enumerate(available):
            whole = used[n, 1:].searchsorted(capacity, side="right")
            part = (capacity - used[n, whole]) * self._density[n, whole]
            np.minimum(bounds, held[n, whole] + part, out=bounds)
        if seed is not None:
            bounds[(self._capacities < pool.size[:, seed]).any(axis=1)] = -worth
        return bounds + worth


def _weights(prices: Floats, sizes: Floats) -> Floats:
    """Return the weights of resources, a row for each way; a way in which no item has a size is left out."""
    emphasised = np.where(np.eye(len(prices), dtype=bool), _EMPHASIS, 1.0) * prices
    weights: Floats = np.vstack([np.eye(len(prices)), prices, emphasised[prices > 0]])
    return weights[(sizes @ weights.T > 0).any(axis=0)]


def _totals(values: Floats) -> Floats:
    """Return the running totals of each row, starting with 0."""
    totals = np.zeros((values.shape[0], values.shape[1] + 1))
    values.cumsum(axis=1, out=totals[:, 1:])
    return totals
