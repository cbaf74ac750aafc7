"""Buy for items of very many kinds: node after node, each built around the item that is hardest to place.

Items of which a node holds few come first, those that need the most nodes at the head; the largest items follow. Each
item that joins a node is chosen for the capacity that is left: its score is the inner product of its size and the
remaining capacity, both valued in money (Panigrahy et al., "Heuristics for vector bin packing", 2011).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import fsum

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.bound import even_prices
from nodesmith.decisions.packing.problem import Bin, Holds, Item, RemainingLimits, Vector
from nodesmith.decisions.packing.reduction import admitted_by

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


# The number of cheap bins to try, and the least ratio of successive prices.
_WIDE, _NARROW = (
    (4, 1.5),
    (3, 1.05),
)
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
