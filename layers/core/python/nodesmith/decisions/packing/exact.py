"""A provably cheapest packing of a few items, and better packings of a few nodes of a plan.

`exact` is dynamic programming over the counts left to pack. A state is the count of each item left to pack. Its price
is the minimum, over every pattern that holds some of the state's first item, of the price of the pattern's cheapest bin
plus the price of the state that remains. `downsize` and `repack` improve plans: cheaper bins for the contents of their
nodes, and the items of a few nodes packed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from math import fsum, inf, prod
from operator import le

from nodesmith.decisions.packing.problem import Bin, Item, PartialPlan, Sharing, Vector

Choice = tuple[Bin, Vector]
# Added to each node's price, so that the plan with the fewest nodes wins among plans at the same price.
NODE_SURCHARGE = 1e-7


def transitions(counts: Sequence[int]) -> int:
    """Return how much work `exact` takes: the number of pairs of a state and a part of it."""
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
    # Without the other items, states keep their numbers.
    present = [i for i, count in enumerate(counts) if count]
    worth = [radix[i] for i in present]
    singles = cheapest.of(counts, radix)
    price = [0.0 if single is None else single.price + NODE_SURCHARGE for single in singles]
    best, part = [0.0], [0]
    for state, vector in _states([counts[i] for i in present]):
        if not state:
            continue
        first = next(i for i, n in enumerate(vector) if n)
        parts = [k * worth[first] for k in range(1, vector[first] + 1)]
        for i in range(first + 1, len(vector)):
            if vector[i]:
                steps = range(0, (vector[i] + 1) * worth[i], worth[i])
                parts = [p + step for p in parts for step in steps]
        choice = min(
            [(price[p] + best[state - p], p) for p in parts if singles[p] is not None], default=(inf, 0)
        )
        best.append(choice[0])
        part.append(choice[1])
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
        chosen_part = part[state]
        chosen = singles[chosen_part]
        if chosen is not None:
            counts = tuple(chosen_part % after // before for before, after in pairwise(radix))
            yield chosen, counts
        state -= chosen_part


_LEAST_SAVING = 1e-9
_MOST_NODES = 200
_Part = tuple[tuple[Bin, Vector], ...]


def downsize(partial: PartialPlan, bins: Sequence[Bin]) -> None:
    """Move the items of each node into the cheapest bin that holds them, or a part of it if its limit pays for that."""
    ordered = sorted(bins, key=lambda b: (b.price, b.key))
    axes = range(len(bins[0].capacity))
    for _ in range(len(partial.bought)):
        bin_, counts, repeats = partial.give_back(0)
        mask = sum(1 << i for i, n in enumerate(counts) if n)
        size = [
            sum(i.size[axis] * n for i, n in zip(partial.items, counts, strict=True) if n) for axis in axes
        ]
        for candidate in ordered:
            if candidate.price >= bin_.price:
                break
            if not (candidate.admits & mask == mask and all(map(le, size, candidate.capacity))):
                continue
            part = None
            if partial.remaining.affords(candidate) < repeats:
                part = partial.remaining.part(candidate)
                if part is None or part.price >= bin_.price:
                    continue
                partial.buy(part, counts, 1)
                repeats -= 1
            else:
                bin_ = candidate
            break
        partial.buy(bin_, counts, repeats)


def repack(partial: PartialPlan, cheapest: Cheapest, most_transitions: int, most_steps: int) -> None:
    """Repack one, two and three nodes at a time until no such change saves anything, or the steps run out.

    A step is a transition of `exact`. Plans of more than 200 nodes stay unchanged: repacking three of so many nodes
    saves too little.
    """
    if sum(repeats for _, _, repeats in partial.bought) > _MOST_NODES:
        return
    tried: set[_Part] = set()
    end = partial.steps + most_steps
    saved = True
    while saved and partial.steps < end:
        saved = False
        for part in _parts(partial):
            held = tuple(map(sum, zip(*(counts for _, counts in part), strict=True)))
            work = transitions(held)
            if part in tried or work > most_transitions:
                continue
            tried.add(part)
            partial.steps += work
            better = exact(cheapest, held)
            if (
                better is not None
                and _price(better) < _price(part) - _LEAST_SAVING
                and _is_paid(partial, part, better)
            ):
                _replace(partial, part, better)
                saved = True
                break
            if partial.steps >= end:
                break


def _parts(partial: PartialPlan) -> Iterator[_Part]:
    kinds: Counter[tuple[Bin, Vector]] = Counter()
    for bin_, counts, repeats in partial.bought:
        kinds[bin_, counts] += repeats
    ordered = sorted(kinds, key=lambda kind: (kind[0].price, kind[0].key, kind[1]))
    several = [kind for kind in ordered for _ in range(min(3, kinds[kind]))]
    for size in (1, 2, 3):
        yield from dict.fromkeys(combinations(several, size))


def _price(choices: Sequence[Choice]) -> float:
    return fsum(bin_.price + NODE_SURCHARGE for bin_, _ in choices)


def _is_paid(partial: PartialPlan, part: _Part, better: Sequence[Choice]) -> bool:
    """Return whether the limits allow the `better` nodes in place of those in `part`."""
    left = {limit: list(amounts) for limit, amounts in partial.remaining.limits.items()}
    for sign, choices in ((1, part), (-1, better)):
        for bin_, _ in choices:
            if bin_.limit in left:
                pairs = zip(left[bin_.limit], bin_.cost, strict=True)
                left[bin_.limit] = [amount + sign * cost for amount, cost in pairs]
    return all(amount >= 0 for bin_, _ in better if bin_.limit in left for amount in left[bin_.limit])


def _replace(partial: PartialPlan, part: _Part, better: Sequence[Choice]) -> None:
    for kind in part:
        number = next(n for n, (bin_, counts, _) in enumerate(partial.bought) if (bin_, counts) == kind)
        bin_, counts, repeats = partial.give_back(number)
        partial.buy(bin_, counts, repeats - 1)
    for bin_, counts in better:
        partial.buy(bin_, counts, 1)
