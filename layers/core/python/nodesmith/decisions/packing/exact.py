"""A provably cheapest packing of a few items, by dynamic programming over the counts left to pack.

A state is the count of each item left to pack. Its price is the minimum, over every pattern that holds some of the
state's first item, of the price of the pattern's cheapest bin plus the price of the state that remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import inf, prod
from operator import le

from nodesmith.decisions.packing.problem import Bin, Item, Sharing, Vector

Choice = tuple[Bin, Vector]
A_NODE = 1e-7  # added to each node's price: among plans at one price, the one with the fewest nodes wins


def transitions(counts: Sequence[int]) -> int:
    """Return the amount of work: the number of pairs of a state and a part of it."""
    return prod((n + 1) * (n + 2) // 2 for n in counts)


def number_of_patterns(items: Sequence[Item]) -> int:
    """Return an upper bound on the number of patterns, including the empty one."""
    return prod(min(item.count, item.most) + 1 for item in items)


class Cheapest:
    """The cheapest bin for each pattern, computed once: repacking looks up similar patterns again and again."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin]) -> None:
        self._items = items
        self._ordered = sorted(bins, key=lambda b: (b.price, b.key))
        self._places: dict[Vector, int] = {}
        self.plans: dict[Vector, Sequence[Choice] | None] = {}
        """the results of `exact`, by count of each item"""

    def of(self, counts: Sequence[int], radix: Sequence[int]) -> list[Bin | None]:
        """Return for every state the cheapest bin that holds all of it, or None.

        If one state contains another, its cheapest bin never comes earlier in the order of price.
        """
        at = [0]
        for state, vector in _states(counts):
            if state:
                place = self._places.get(vector)
                if place is None:
                    place = self._places[vector] = self._place(state, vector, radix, at)
                at.append(place)
        none = len(self._ordered)
        return [
            None if place == none or not state else self._ordered[place] for state, place in enumerate(at)
        ]

    def _place(self, state: int, vector: Vector, radix: Sequence[int], at: Sequence[int]) -> int:
        held = [i for i, n in enumerate(vector) if n]
        place, none = max(at[state - radix[i]] for i in held), len(self._ordered)
        if place == none or not _may_share(self._items, vector, held):
            return none
        mask = sum(1 << i for i in held)
        axes = range(len(self._items[0].size))
        size = [sum(self._items[i].size[axis] * vector[i] for i in held) for axis in axes]
        while place < none:
            candidate = self._ordered[place]
            if candidate.admits & mask == mask and all(map(le, size, candidate.capacity)):
                break
            place += 1
        return place


def exact(cheapest: Cheapest, counts: Vector) -> Sequence[Choice] | None:
    """Return the cheapest nodes that hold these counts, or None if no bins do. Limits are ignored."""
    if counts not in cheapest.plans:
        cheapest.plans[counts] = _solved(cheapest, counts)
    return cheapest.plans[counts]


def _solved(cheapest: Cheapest, counts: Vector) -> Sequence[Choice] | None:
    radix = [1]
    for count in counts:
        radix.append(radix[-1] * (count + 1))
    there = [i for i, count in enumerate(counts) if count]  # states keep their numbers without the others
    worth = [radix[i] for i in there]
    singles = cheapest.of(counts, radix)
    price = [0.0 if which is None else which.price + A_NODE for which in singles]
    best, part = [0.0], [0]
    for state, vector in _states([counts[i] for i in there]):
        if not state:
            continue
        first = next(i for i, n in enumerate(vector) if n)
        parts = [k * worth[first] for k in range(1, vector[first] + 1)]
        for i in range(first + 1, len(vector)):
            if vector[i]:
                steps = range(0, (vector[i] + 1) * worth[i], worth[i])
                parts = [p + step for p in parts for step in steps]
        found = min(
            [(price[p] + best[state - p], p) for p in parts if singles[p] is not None], default=(inf, 0)
        )
        best.append(found[0])
        part.append(found[1])
    if best[-1] == inf:
        return None
    return list(_walk(len(best) - 1, part, singles, radix))


def _states(counts: Sequence[int]) -> Iterator[tuple[int, Vector]]:
    """Yield every state with its number, in order of numbers: the first item's count changes fastest."""
    for number, reverse in enumerate(product(*(range(n + 1) for n in reversed(counts)))):
        yield number, reverse[::-1]


def _may_share(items: Sequence[Item], vector: Vector, held: Sequence[int]) -> bool:
    sharing = Sharing()
    return all(vector[i] <= items[i].per_node and sharing.add(items[i], vector[i]) == vector[i] for i in held)


def _walk(
    state: int, part: Sequence[int], singles: Sequence[Bin | None], radix: Sequence[int]
) -> Iterator[Choice]:
    while state:
        taken = part[state]
        chosen = singles[taken]
        if chosen is not None:
            counts = tuple(taken % after // before for before, after in pairwise(radix))
            yield chosen, counts
        state -= taken
