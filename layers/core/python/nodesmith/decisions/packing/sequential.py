"""Buy for an item pool: node after node, each built around the item that is hardest to place among those left.

Items of which a node holds few come first, those that need the most nodes at the head; the largest items follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nodesmith.decisions.packing.bound import even_prices
from nodesmith.decisions.packing.itempool import Floats, Indices, ItemPool
from nodesmith.decisions.packing.problem import Bin, Holds, Item, RemainingLimits, Vector
from nodesmith.decisions.packing.reduction import admitted_by

_WIDE, _NARROW = (
    (4, 1.5),
    (3, 1.05),
)  # the number of cheap bins to try, and the least ratio of successive prices
_FULL_BINS, _LOOKED_AT = 2, 8
_MOST_CLASSES = 100
_LEAST_WORTH = 1e-12
_Bought = tuple[Bin, Holds, int]
_Able = tuple[int, Indices, Floats]


def pack_sequentially(
    items: Sequence[Item], bins: Sequence[Bin], remaining: RemainingLimits, most_steps: int
) -> tuple[list[_Bought], list[int], int]:
    """Buy until nothing fits, the limits are reached or the steps run out.

    Return the nodes, the count of each item left, and the steps taken.
    """
    index = _BinIndex(items, bins, remaining)
    pool = index.pool
    scarce = _scarce(items)
    bought: list[_Bought] = []
    for place, seed in enumerate([*scarce, *np.argsort(-pool.worth, kind="stable").tolist()]):
        while pool.left[seed] > 0 and pool.steps < most_steps:
            found = index.around(seed, full_bins=place >= len(scarce))
            if found is None:
                break
            bought.append(index.buy(*found))
    return bought, pool.left.tolist(), pool.steps


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
    """Return what each item costs where it may go; items that the same bins admit are valued together.

    Items that may only go into expensive bins are worth what they cost there. If there are too many such classes,
    `prices` determine the worth of all items.
    """
    masks = sorted({b.admits for b in bins})
    classes: dict[tuple[str, ...], list[int]] = {}
    for number, signature in enumerate(admitted_by(len(items), masks)):
        classes.setdefault(signature, []).append(number)
    worth: Floats = prices @ np.array([item.size for item in items], dtype=np.float64).T
    for signature, members in classes.items() if len(classes) <= _MOST_CLASSES else ():
        admitting = {mask for mask, bit in zip(masks, signature, strict=True) if bit == "1"}
        mine = even_prices([items[n] for n in members], [b for b in bins if b.admits in admitting])
        worth[members] = np.array([items[n].size for n in members], dtype=np.float64) @ np.array(mine)
    return worth


class _BinIndex:
    """The bins, by the items they admit and in order of price."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], remaining: RemainingLimits) -> None:
        self._remaining = remaining
        self._bins: dict[int, list[Bin]] = {}
        for each in sorted(bins, key=lambda b: (b.price, b.key)):
            self._bins.setdefault(each.admits, []).append(each)
        self._capacities = {
            mask: np.array([b.capacity for b in group], dtype=np.float64)
            for mask, group in self._bins.items()
        }
        self._prices = {mask: np.array([b.price for b in group]) for mask, group in self._bins.items()}
        prices = np.array(even_prices(items, bins))
        self.pool = ItemPool(items, list(self._bins), prices, _worth(items, bins, prices))

    def around(self, seed: int, *, full_bins: bool) -> _Bought | None:
        """Return the node for item `seed` and others that wastes the least money; None if no bin holds it.

        If `full_bins` is True, bins that would be cheap if they were completely filled are tried as well.
        """
        best: tuple[float, float, str] | None = None
        chosen: _Bought | None = None
        able = list(self._able(seed))
        cheap = self._cheap(able, _NARROW if full_bins else _WIDE)
        for candidate in dict.fromkeys((*cheap, *(self._full(able) if full_bins else ()))):
            value, holds = self.pool.fill(candidate, seed)
            rank = candidate.price - value, candidate.price, candidate.key
            if holds and (best is None or rank < best):
                best, chosen = rank, (candidate, holds, self.pool.repeats(holds))
        return chosen

    def _cheap(self, holding: Iterable[_Able], steps_up: tuple[int, float]) -> Sequence[Bin]:
        """Return a few bins of one mask, in order of price: the mask whose cheapest bin costs least.

        Among equals, it is the mask that admits most of the items left.
        """
        choices: list[tuple[float, float, int, list[Bin]]] = []
        for mask, able, waiting in holding:
            group = self._bins[mask]
            affordable = (group[n] for n in able.tolist() if self._remaining.affords(group[n]))
            steps = list(_steps(affordable, *steps_up))
            if steps:
                choices.append((steps[0].price, -float(waiting @ self.pool.prices), mask, steps))
        return min(choices)[3] if choices else ()

    def _full(self, holding: Iterable[_Able]) -> Sequence[Bin]:
        """Return the bins that would hold most for their price if they were completely filled."""
        choices: list[tuple[float, float, str, Bin]] = []
        for mask, able, waiting in holding:
            value = np.minimum(self._capacities[mask][able], waiting) @ self.pool.prices
            ranks = self._prices[mask][able] / np.maximum(value, _LEAST_WORTH)
            for place in np.argsort(ranks, kind="stable")[:_LOOKED_AT].tolist():
                one = self._bins[mask][able[place]]
                if self._remaining.affords(one):
                    choices.append((float(ranks[place]), -float(waiting @ self.pool.prices), one.key, one))
        alike: dict[tuple[float, Vector], Bin] = {}
        for *_, one in sorted(choices):
            alike.setdefault((one.price, one.capacity), one)
        return list(alike.values())[:_FULL_BINS]

    def _able(self, seed: int) -> Iterator[_Able]:
        """Yield for each mask that admits `seed` the mask, the bins that hold it, and the size of the items left.

        The size is the total over the items that the mask admits.
        """
        size = self.pool.size[:, seed]
        for mask, capacities in self._capacities.items():
            if self.pool.admits[mask][seed]:
                waiting = self.pool.size @ (self.pool.left * self.pool.admits[mask])
                yield mask, np.flatnonzero((capacities >= size).all(axis=1)), waiting

    def buy(self, candidate: Bin, holds: Holds, repeats: int) -> _Bought:
        """Buy this bin, or a cheaper one that holds the same items."""
        cheaper = self._cheapest(candidate, holds)
        number = min(repeats, self._remaining.affords(cheaper))
        self._remaining.spend(cheaper, number)
        self.pool.take(holds, number)
        return cheaper, holds, number

    def _cheapest(self, candidate: Bin, holds: Holds) -> Bin:
        held = [item for item, _ in holds]
        counts = np.array([number for _, number in holds])
        size = self.pool.size[:, held] @ counts
        for mask, group in self._bins.items():
            if self.pool.admits[mask][held].all():
                for n in np.flatnonzero((self._capacities[mask] >= size).all(axis=1)).tolist():
                    if group[n].price >= candidate.price:
                        break
                    if self._remaining.affords(group[n]):
                        candidate = group[n]
                        break
        return candidate


def _steps(bins: Iterable[Bin], most: int, step: float) -> Iterator[Bin]:
    """Yield up to `most` of these bins, each dearer than the last by at least factor `step`.

    The bins must come in order of price.
    """
    last, number = 0.0, 0
    for each in bins:
        if each.price >= last * step:
            yield each
            last, number = each.price, number + 1
            if number == most:
                break
