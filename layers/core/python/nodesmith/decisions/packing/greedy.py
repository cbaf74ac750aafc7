"""The quick plan: repeatedly buy the bin with the highest worth of contents per price.

Contents are valued at the dual prices of the resources (`resource_prices`), so that the prices of the bins and the
demand decide the weights of cpu and memory. A pattern is repeated as often as the demand allows. The work therefore
grows with the number of kinds of items, not with the number of items.

Under limits, the amounts that bins take from them get a price as well (Lagrangian relaxation). Without it, bins that
are cheap for their contents use up limits that more expensive bins use better: small nodes use up a limit on the number
of nodes. The price is the Lagrange multiplier of all limits together: Everett, "Generalized Lagrange multiplier method
for solving problems of optimum allocation of resources", Operations Research 11, 1963.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, fsum, inf, log
from operator import gt, mul
from typing import NamedTuple

from nodesmith.decisions.packing.exact import downsize
from nodesmith.decisions.packing.problem import Bin, Item, Limits, PartialPlan, Sharing, Vector

_LEAST_WORTH = 1e-12
_ROUNDING = 1 + 1e-9
_Filling = tuple[Vector, float]


def fill_greedily(
    partial: PartialPlan, bins: Sequence[Bin], prices: Sequence[float], most_steps: int
) -> None:
    """Buy bins for the items left in `partial` until none of them fits, the limits are reached, or the steps run out.

    `prices` are per unit of each resource (see `resource_prices`). Dominated bins (see `undominated`) only cost time.
    """
    items = partial.items
    worth = [max(fsum(map(mul, prices, item.size)), _LEAST_WORTH) for item in items]
    ruled = items if any(item.groups or item.caps for item in items) else None
    candidates = [b for b in bins if b.admits]
    waiting = [number for number, left in enumerate(partial.left) if left]
    orders = [_order(candidate, items, worth, waiting) for candidate in candidates]
    patterns: list[_Filling | None] = [None] * len(candidates)
    end = partial.steps + most_steps
    while partial.steps < end:
        best: tuple[float, float, str] | None = None
        chosen: tuple[Bin, Vector] | None = None
        most = _WorthBound(prices, items, partial.left)
        for index, candidate in enumerate(candidates):
            if best is not None and candidate.price > best[0] * most.value(candidate):
                continue  # could not be the best choice even if it were completely filled
            pattern = patterns[index]
            if pattern is None or any(map(gt, pattern[0], partial.left)):
                pattern = patterns[index] = _fill(candidate.capacity, orders[index], partial.left, ruled)
                partial.steps += 1
            counts, value = pattern
            if value <= 0 or not partial.remaining.affords(candidate):
                continue
            rank = (candidate.price / value, -value, candidate.key)
            if best is None or rank < best:
                best, chosen = rank, (candidate, counts)
        if chosen is None:
            break
        partial.buy(*chosen, partial.repeats(chosen[1]))


class _WorthBound:
    """An upper bound on the worth of a pattern, given the items left to pack."""

    def __init__(self, prices: Sequence[float], items: Sequence[Item], left: Sequence[int]) -> None:
        totals = (
            sum(i.size[axis] * n for i, n in zip(items, left, strict=True)) for axis in range(len(prices))
        )
        self._priced = [
            (axis, price, total)
            for axis, (price, total) in enumerate(zip(prices, totals, strict=True))
            if price
        ]
        self._slack = _LEAST_WORTH * (1 + sum(left))

    def value(self, candidate: Bin) -> float:
        """Return the worth, summed over resources, of the bin's capacity or of all items left if that is less."""
        capacity, value = candidate.capacity, self._slack
        for axis, price, total in self._priced:
            have = capacity[axis]
            value += price * (have if have < total else total) * _ROUNDING
        return value


class _Step(NamedTuple):
    """One item in the order of filling; `least` is the minimum cpu and memory of this item and all later ones."""

    item: int
    size: Vector
    per_node: int
    worth: float
    least: tuple[int, int]


def _order(
    candidate: Bin, items: Sequence[Item], worth: Sequence[float], waiting: Sequence[int]
) -> list[_Step]:
    """Return the `waiting` items, largest first by their total share of the bin's capacity (first-fit decreasing)."""
    inverse = [1 / capacity if capacity else 1.0 for capacity in candidate.capacity]
    shares = [(-fsum(map(mul, items[i].size, inverse)), i) for i in waiting if candidate.admits >> i & 1]
    steps: list[_Step] = []
    cpu, memory = candidate.capacity[:2]
    for _, index in sorted(shares, reverse=True):
        size = items[index].size
        cpu, memory = min(cpu, size[0]), min(memory, size[1])
        steps.append(_Step(index, size, items[index].most, worth[index], (cpu, memory)))
    return steps[::-1]


def _fill(
    capacity: Sequence[int], order: Sequence[_Step], left: Sequence[int], ruled: Sequence[Item] | None
) -> _Filling:
    """Fill an empty node. `ruled` are the items if any of them has groups or caps, otherwise None."""
    counts = [0] * len(left)
    sharing = Sharing()
    value = 0.0
    for index, size, per_node, worth, (cpu, memory) in order:
        if cpu > capacity[0] or memory > capacity[1]:
            break  # neither this nor anything later fits
        count = left[index]
        if not count:
            continue
        if per_node < count:
            count = per_node
        for available, needed in zip(capacity, size):  # noqa: B905 - strict costs a fifth of the whole search
            if count * needed > available:
                count = available // needed
        if ruled is not None and count:
            count = sharing.add(ruled[index], count)
        if count:
            counts[index] = count
            value += count * worth
            capacity = [available - count * needed for available, needed in zip(capacity, size)]  # noqa: B905
    return tuple(counts), value


_TRIALS = 12
_FAR = 4.0
"""The factor by which the search range exceeds, at both ends, the prices of bins per share of their limits.

At a much higher price, a few more items would justify a bin that costs many times as much.
"""


def relaxed(
    partial: PartialPlan, bins: Sequence[Bin], limits: Limits, prices: Sequence[float], most_steps: int
) -> PartialPlan:
    """Return the best of some quick plans for the items of `partial`, each with another price of the limits.

    Its steps are those of all, and of `partial`. `prices` are per unit of each resource.
    """
    plans, whole = [partial], {b.key: b for b in bins}

    def left_with(dearer: Sequence[Bin]) -> int:
        priced = PartialPlan(partial.items, limits, plans[-1].steps)
        fill_greedily(priced, dearer, prices, max(0, most_steps - priced.steps))
        plan = PartialPlan(partial.items, limits, priced.steps)  # the same at the bins' own prices
        for bin_, counts, repeats in priced.bought:
            plan.buy(whole.get(bin_.whole_key, bin_), counts, repeats)
        plans.append(plan)
        return sum(plan.left)

    price_limits(bins, limits, left_with, _TRIALS)
    best = min(plans[1:], key=lambda plan: plan.rank, default=partial)
    best.steps = plans[-1].steps
    downsize(best, bins)
    return best


def price_limits(
    bins: Sequence[Bin], limits: Limits, left_with: Callable[[Sequence[Bin]], int], trials: int
) -> None:
    """Let `left_with` make plans with bins that are charged for the shares that they take of their limits.

    `left_with` returns how many items a plan leaves unpacked. The first price of limits is so high that it alone
    decides. A higher price packs more items and makes the plan dearer, so bisection then looks for the lowest price
    that leaves no more items.
    """
    shares = [_share(candidate, limits) for candidate in bins]
    ratios = [b.price / share for b, share in zip(bins, shares, strict=True) if b.price > 0 < share <= 1]
    if not ratios:
        return

    def left_at(price: float) -> int:
        return left_with(
            [replace(b, price=b.price + price * share) for b, share in zip(bins, shares, strict=True)]
        )

    low, high = log(min(ratios) / _FAR), log(max(ratios) * _FAR)
    least = left_at(exp(high))
    for _ in range(trials - 1):
        middle = (low + high) / 2
        suffices = left_at(exp(middle)) <= least
        low, high = (low, middle) if suffices else (middle, high)


def _share(candidate: Bin, limits: Limits) -> float:
    """Return the largest share that a bin takes of an amount of its limit; 0 if it has none."""
    amounts = zip(candidate.cost, limits.get(candidate.limit, ()), strict=False)
    return max((cost / have if have > 0 else inf for cost, have in amounts if cost), default=0.0)
