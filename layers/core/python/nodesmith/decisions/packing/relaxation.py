"""Lagrangian relaxation of limits: what bins take of their limits gets a price, so that little of them is wasted.

Without that price, bins that are cheap for their contents use up limits of which dearer ones make more: small nodes use
up a limit on the number of nodes. The price is the Lagrange multiplier of all limits together: Everett, "Generalized
Lagrange multiplier method for solving problems of optimum allocation of resources", Operations Research 11, 1963.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, inf, log

from nodesmith.decisions.packing.exact import downsize
from nodesmith.decisions.packing.greedy import fill_greedily
from nodesmith.decisions.packing.problem import Bin, Limits, PartialPlan

_TRIALS = 12
_FAR = 4.0
"""How far beyond the prices of bins for the whole of their limits the search begins and ends, as a factor.

At a much higher price, a few more items would be worth a bin that costs many times as much.
"""


def relaxed(
    partial: PartialPlan, bins: Sequence[Bin], limits: Limits, prices: Sequence[float], most_steps: int
) -> PartialPlan:
    """Return the best of some quick plans for the items of `partial`. Its steps are those of all, and of `partial`.

    `prices` are those of a unit of each resource.
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
    """Let `left_with` make plans with bins whose prices contain what they take of their limits.

    It returns how many items a plan leaves. The first price is so high that it alone decides. The higher it is, the
    more is packed and the more that costs, so bisection then looks for the lowest price that leaves no more items.
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
