"""The packer: a quick plan first, then as much search as its distance from the lower bound justifies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from math import fsum, inf
from typing import NamedTuple

from nodesmith.decisions.packing.bound import FEW_KINDS, lower_bound, resource_prices
from nodesmith.decisions.packing.exact import (
    Cheapest,
    downsize,
    exact,
    number_of_patterns,
    repack,
    transitions,
)
from nodesmith.decisions.packing.greedy import fill_greedily, price_limits, relaxed
from nodesmith.decisions.packing.problem import (
    Bin,
    Holds,
    Item,
    Limits,
    Node,
    Packing,
    PartialPlan,
    RemainingLimits,
    Vector,
    holds,
)
from nodesmith.decisions.packing.reduction import Part, filled, parts, undominated, usable

MOST_STEPS = 50_000_000
GOOD_ENOUGH = 1.005
"""the ratio of a plan's price to its lower bound at or below which the plan is not improved further"""
_NEAR_BOUND = 1.1
"""the ratio of a plan's price to its bound at or below which no slower method is tried for many kinds"""
_PROVABLE, _PROVABLE_AT_LENGTH = 250_000, 2_000_000
_PROVABLE_TOGETHER = 5_000
_MENDING = 100_000
_SOME_KINDS = 120
_MOST_PLANS, _MOST_PLANNED_STEPS = 6, 60_000
_MOST_COLUMN_STEPS = 1_500_000
_MOST_ENUMERATED = 12
"""kinds; with so few, column generation often lists all patterns, and sequential plans add nothing"""
_MOST_FILLINGS = 500
_TRIALS_OF_MANY = 6
_AMPLE = 10_000_000
"""steps, more than any part with few kinds of items takes"""
_Prices = tuple[float, ...]


class _Plan(NamedTuple):
    """The packing of one part. `left` is in the order of the part's items."""

    bought: Sequence[tuple[Bin, Holds, int]]
    left: Sequence[int]
    limits: Limits
    bound: float
    steps: int


PartPlans = dict[object, _Plan]
"""plans of parts that have been packed already, for reuse in similar problems"""


def pack(
    items: Sequence[Item],
    bins: Sequence[Bin],
    limits: Limits | None = None,
    most_steps: int = MOST_STEPS,
    *,
    bounded: bool = True,
    good_enough: float = GOOD_ENOUGH,
    part_plans: PartPlans | None = None,
) -> Packing:
    """Pack as many items as bins and limits allow, at a low price.

    If `most_steps` runs out, the remaining items stay unpacked. If `bounded` is False, the bound may be 0 for parts
    that can be packed without one. A plan is not improved further if its price is at most `good_enough` times its
    bound; if `good_enough` is infinite, the quick plan is returned unless limits keep items out. Parts in `part_plans`
    take no steps, and the plans of new parts are added to it.
    """
    spendable: Limits = dict(limits or {})
    left = [item.count for item in items]
    nodes: list[Node] = []
    bound, steps = 0.0, 0
    originals = {b.key: b for b in bins}
    for part in parts(items, undominated(filled(items, bins))):
        part_limits = {b.limit: spendable[b.limit] for b in part.bins if b.limit in spendable}
        if len(part.items) <= FEW_KINDS:
            plan = _packed_few(
                part, part_limits, most_steps - steps, good_enough, {} if part_plans is None else part_plans
            )
        else:
            plan = _packed_many(part, part_limits, most_steps - steps, good_enough)
            if bounded and not plan.bound:
                plan = plan._replace(bound=_bound(part.items, plan.left, part.bins))
        spendable = {**spendable, **plan.limits}
        steps, bound = steps + plan.steps, bound + plan.bound
        for bin_, held, repeats in plan.bought:
            whole = originals[bin_.whole_key]
            bought = whole if whole.key == bin_.key else _part(whole, bin_)
            nodes += _nodes(bought, part.members, held, repeats, left)
    return Packing(tuple(nodes), tuple(left), spendable, bound, steps)


def _packed_few(
    part: Part, limits: Limits, most_steps: int, good_enough: float, part_plans: PartPlans
) -> _Plan:
    if most_steps < _AMPLE:
        return _packed_thoroughly(part, limits, most_steps, good_enough)
    problem = part.items, part.bins, tuple(sorted(limits.items())), good_enough
    plan = part_plans.get(problem)
    if plan is not None:
        return plan._replace(steps=0)
    plan = part_plans[problem] = _packed_thoroughly(part, limits, most_steps, good_enough)
    return plan


def _packed_thoroughly(part: Part, limits: Limits, most_steps: int, good_enough: float) -> _Plan:
    bins = undominated(usable(part.items, part.bins))
    prices = resource_prices(part.items, bins)
    partial = PartialPlan(part.items, limits)
    fill_greedily(partial, bins, prices, most_steps)
    bound, cheapest = _bound(part.items, partial.left, bins), Cheapest(part.items, bins)
    if partial.price > bound * good_enough and partial.steps < most_steps:
        proved, least = _proved(partial, cheapest, limits, _PROVABLE)
        if proved is None:
            partial, bound = _improved(
                partial, bins, cheapest, limits, prices, bound, most_steps, good_enough
            )
            if partial.price > bound * good_enough:
                proved, least = _proved(partial, cheapest, limits, _PROVABLE_AT_LENGTH)
        if proved is not None:
            partial, bound = min(proved, partial, key=lambda plan: plan.rank), least
    if any(b.substitute is not None for b in bins):
        partial = _without_dual_costs(partial, bins, limits, most_steps)
    elif limits and (any(partial.left) or partial.price > bound * good_enough):
        partial, bound = _better_within_limits(partial, bound, bins, limits, prices, most_steps)
    return _plan(partial, bound)


def _without_dual_costs(
    partial: PartialPlan, bins: Sequence[Bin], limits: Limits, most_steps: int
) -> PartialPlan:
    """Return the plan or a cheaper one that ignores the dual costs of bins that limits pay for.

    Dual costs are exact for many nodes only. With few nodes, a plan at full dual costs may leave limits unused.
    """
    free = undominated(
        [replace(b, price=b.price - b.dual_cost, dual_cost=0.0) if b.dual_cost else b for b in bins]
    )
    other = PartialPlan(partial.items, limits, partial.steps)
    prices = resource_prices(partial.items, free)
    fill_greedily(other, free, prices, max(0, most_steps - other.steps))
    downsize(other, free)
    best = min(partial, other, key=lambda plan: plan.rank)
    best.steps = other.steps
    return _better_within_limits(best, 0.0, free, limits, prices, most_steps)[0]


def _plan(partial: PartialPlan, bound: float) -> _Plan:
    bought = [(bin_, holds(counts), repeats) for bin_, counts, repeats in partial.bought]
    return _Plan(bought, partial.left, partial.remaining.limits, bound, partial.steps)


def _packed_many(part: Part, limits: Limits, most_steps: int, good_enough: float) -> _Plan:
    """Return the best of several plans for many kinds of items. Its bound is 0 if it was not needed."""
    from nodesmith.decisions.packing.byclass import pack_by_class  # imports numpy: a tenth of a second

    bound = cache(lambda: _bound(part.items, (0,) * len(part.items), part.bins))
    steps, plans, remaining = 0, list[_Plan](), RemainingLimits(limits)
    by_class = pack_by_class(part.items, part.bins, remaining, most_steps)
    if by_class is not None:
        bought, left, steps = by_class
        plans.append(_Plan(bought, left, remaining.limits, 0.0, steps))
        if _is_within(plans[0], bound, _NEAR_BOUND):
            return plans[0]._replace(bound=bound())
    if len(part.items) <= _SOME_KINDS:
        bins = undominated(usable(part.items, part.bins))
        partial = PartialPlan(part.items, limits, steps)
        fill_greedily(partial, bins, resource_prices(part.items, bins), most_steps)
        downsize(partial, bins)
        steps = partial.steps
        plans.append(_plan(partial, 0.0))
    plan = _sequential(part.items, part.bins, limits, max(0, most_steps - steps), bound, good_enough)
    best = min([*plans, plan], key=_rank)._replace(steps=steps + plan.steps)
    if any(best.left) and any(map(RemainingLimits(limits).affords, part.bins)):
        best = _best_with_priced_limits(part, limits, most_steps, best)
    if good_enough == inf:
        return best
    if len(part.items) <= _SOME_KINDS and not _is_within(best, bound, _NEAR_BOUND):
        best = _improved_by_columns(part, limits, most_steps, best, good_enough)
    return best if any(best.left) else best._replace(bound=max(best.bound, bound()))


def _best_with_priced_limits(part: Part, limits: Limits, most_steps: int, other: _Plan) -> _Plan:
    """Return the best of a plan and some sequential ones that use the limits better. Its steps are those of all."""
    from nodesmith.decisions.packing.sequential import sequential_plans  # imports numpy

    plans, whole = [other], {b.key: b for b in part.bins}
    most_steps = min(most_steps, other.steps + _MOST_PLANNED_STEPS)

    def left_with(dearer: Sequence[Bin]) -> int:
        steps = plans[-1].steps
        plan = next(sequential_plans(part.items, dearer, limits, max(0, most_steps - steps)))
        bought = [(whole[b.key], held, repeats) for b, held, repeats in plan.bought]
        plans.append(_Plan(bought, plan.left, plan.limits, 0.0, steps + plan.steps))
        return sum(plan.left)

    price_limits(part.bins, limits, left_with, _TRIALS_OF_MANY)
    return min(plans, key=_rank)._replace(steps=plans[-1].steps)


def _improved_by_columns(
    part: Part, limits: Limits, most_steps: int, other: _Plan, good_enough: float
) -> _Plan:
    """Return the better of a plan and the plan that column generation finds in a limited number of steps."""
    if other.steps + _AMPLE > most_steps:
        return other
    plan = _packed_thoroughly(part, limits, _MOST_COLUMN_STEPS, good_enough)
    return min(other, plan, key=_rank)._replace(steps=other.steps + plan.steps)


def _sequential(
    items: Sequence[Item],
    bins: Sequence[Bin],
    limits: Limits,
    most_steps: int,
    bound: Callable[[], float],
    good_enough: float,
) -> _Plan:
    """Return the best of a few sequential plans; if any plan is good enough, only the first one is made."""
    from nodesmith.decisions.packing.sequential import sequential_plans  # imports numpy

    steps, plans = 0, list[_Plan]()
    for plan in islice(sequential_plans(items, bins, limits, most_steps), _MOST_PLANS):
        steps += plan.steps
        plans.append(_Plan(plan.bought, plan.left, plan.limits, 0.0, steps))
        if good_enough == inf or steps + plan.steps > min(most_steps, _MOST_PLANNED_STEPS):
            break
        if _is_within(plans[-1], bound, good_enough):
            break
    return min(plans, key=_rank)._replace(steps=steps)


def _is_within(plan: _Plan, bound: Callable[[], float], ratio: float) -> bool:
    """Return whether a plan packs everything for at most `ratio` times the lower bound."""
    price = fsum(bin_.price * repeats for bin_, _, repeats in plan.bought)
    return not any(plan.left) and price <= bound() * ratio


def _rank(plan: _Plan) -> tuple[int, float]:
    """Return the number of items left, then the price without dual costs, as `PartialPlan.rank`."""
    prices = ((bin_.price - bin_.dual_cost) * repeats for bin_, _, repeats in plan.bought)
    return sum(plan.left), fsum(prices)


def _proved(
    partial: PartialPlan, cheapest: Cheapest, limits: Limits, most_transitions: int
) -> tuple[PartialPlan | None, float]:
    """Return the cheapest packing of the partial plan's items, and a price that no packing of them undercuts.

    The packing is None if it takes too much work or exceeds limits. It costs more than that price if limits made it buy
    substitutes for some bins.
    """
    held = tuple(item.count - left for item, left in zip(partial.items, partial.left, strict=True))
    work = transitions(held)
    best = exact(cheapest, held) if work <= most_transitions else None
    if best is None:
        return None, 0.0
    proved = PartialPlan(partial.items, limits, partial.steps + work)
    for bin_, counts in best:
        proved.buy(bin_, counts, 1)
    least = fsum(bin_.price for bin_, _ in best)
    return (proved, least) if proved.left == partial.left else (None, 0.0)


def _better_within_limits(
    partial: PartialPlan,
    bound: float,
    bins: Sequence[Bin],
    limits: Limits,
    prices: _Prices,
    most_steps: int,
) -> tuple[PartialPlan, float]:
    """Return a plan that packs more within the limits or costs less, and its bound, or else the given ones.

    If there are few patterns, no plan packs more. If there are many, plans are tried only if limits are nearly used up.
    """
    if not any(map(RemainingLimits(limits).affords, bins)):
        return partial, bound
    if number_of_patterns(partial.items) <= _MOST_FILLINGS:
        from nodesmith.decisions.packing.columngeneration.solve import (
            pack_within_limits,  # imports numpy and HiGHS: a quarter of a second
        )

        other = PartialPlan(partial.items, limits, partial.steps)
        pack_within_limits(other, bins)
    elif any(partial.left) or not all(map(partial.remaining.affords, bins)):
        other = relaxed(partial, bins, limits, prices, most_steps)
    else:
        return partial, bound
    partial.steps = other.steps
    if other.rank >= partial.rank:
        return partial, bound
    return other, _bound(other.items, other.left, bins)


def _improved(
    partial: PartialPlan,
    bins: Sequence[Bin],
    cheapest: Cheapest,
    limits: Limits,
    prices: _Prices,
    bound: float,
    most_steps: int,
    good_enough: float,
) -> tuple[PartialPlan, float]:
    """Return a better plan for all that can be packed, if one is found, and a better bound."""
    downsize(partial, bins)
    repack(partial, cheapest, _PROVABLE_TOGETHER, _MENDING)
    if partial.price <= bound * good_enough:
        return partial, bound
    from nodesmith.decisions.packing.columngeneration.solve import (
        pack_by_columns,  # imports numpy and HiGHS: a quarter of a second
    )

    other = PartialPlan(partial.items, limits, partial.steps)
    linear = pack_by_columns(other, bins, partial, prices, most_steps - other.steps)
    downsize(other, bins)
    fill_greedily(other, bins, prices, most_steps - other.steps)
    repack(other, cheapest, _PROVABLE_TOGETHER, _MENDING)
    better = min(partial, other, key=lambda candidate: candidate.rank)
    if _MOST_ENUMERATED < len(better.items) <= FEW_KINDS and better.price > bound * good_enough:
        steps_left = max(0, most_steps - better.steps)
        plan = _sequential(better.items, bins, limits, steps_left, lambda: bound, good_enough)
        better = min(better, _bought_again(plan, better, limits), key=lambda candidate: candidate.rank)
    proved = 0.0 if any(better.left) else min(linear, better.price)
    return better, max(proved, _bound(better.items, better.left, bins))


def _bought_again(plan: _Plan, partial: PartialPlan, limits: Limits) -> PartialPlan:
    """Return a plan as a partial plan for the items of another one. Its steps are those of both."""
    replayed = PartialPlan(partial.items, limits, partial.steps + plan.steps)
    for bin_, held, repeats in plan.bought:
        counts = dict(held)
        replayed.buy(bin_, tuple(counts.get(number, 0) for number in range(len(replayed.items))), repeats)
    return replayed


def _bound(items: Sequence[Item], left: Sequence[int], bins: Sequence[Bin]) -> float:
    pairs = zip(items, left, strict=True)
    served = [replace(item, count=item.count - unpacked) if unpacked else item for item, unpacked in pairs]
    return lower_bound(served, bins)


def _part(whole: Bin, part: Bin) -> Bin:
    """Return a bin that its limit pays for in part, with the capacity of the original."""
    return replace(whole, key=part.key, price=part.price, cost=part.cost, substitute=None)


def _nodes(bin_: Bin, members: Sequence[Vector], held: Holds, repeats: int, left: list[int]) -> list[Node]:
    """Return the nodes in the item numbers of the whole problem, and subtract their items from `left`."""
    nodes: list[Node] = []
    while repeats:
        shared = _share(members, held, left)
        number = min(repeats, *(left[item] // count for item, count in shared))
        for item, count in shared:
            left[item] -= number * count
        nodes.append(Node(bin_, shared, number))
        repeats -= number
    return nodes


def _share(members: Sequence[Vector], held: Holds, left: Sequence[int]) -> Holds:
    """Return which items of the whole problem a pattern takes, lower numbers first."""
    shared: list[tuple[int, int]] = []
    for item, count in held:
        for number in members[item]:
            assigned = min(count, left[number])
            if assigned:
                shared.append((number, assigned))
                count -= assigned
            if not count:
                break
    return tuple(sorted(shared))
