"""Buy for demands: tier by tier of NodePool weight, each packed at its lowest price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nodesmith.decisions.packing import Node
from nodesmith.decisions.provisioning.purchase.flexibility import Options, without_cuts
from nodesmith.decisions.provisioning.purchase.order import NodePurchase, Order, Purchase
from nodesmith.decisions.provisioning.purchase.packednodes import (
    PackedNodes,
    filled,
    find_cuts,
    least_nodes_first,
    made_less_fragile,
    with_fewer_nodes,
)
from nodesmith.decisions.provisioning.purchase.packingproblem import PackingProblem, packing_problem
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.options import NO_OPTIONS, Pricing
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.kubernetes.pods import Pod, Shape

_FEW_PODS = 64
"""Up to so many pods everything is packed again after a node is refused."""
_AGAIN, _MOST_PACKINGS = 4, 24


def buy(tiers: Sequence[Sequence[Template]], demands: Sequence[Demand], order: Order) -> Purchase:
    """Buy nodes for all demands that some tier can serve; heavier tiers come first and leave the rest to lighter ones.

    If nothing can be bought for a demand with preferences, its fallback is bought for instead.
    """
    result = Purchase([list(tier) for tier in tiers], left=list(demands))
    _buy_everywhere(order, result)
    result.refused = result.left
    freed = _freed(result.left)
    if freed:
        result.given_up = sum(len(demand.pods) for demand in freed)
        without_fallback = [d for d in result.left if d.fallback is None]
        result.left = freed
        _buy_everywhere(order, result)
        result.left += without_fallback
    if not result.is_bounded:
        result.bound_hourly_usd = 0.0
    return result


def _buy_everywhere(order: Order, result: Purchase) -> None:
    """Buy for what is left, tier by tier; in each tier reserved capacity comes first, because it is paid for anyway."""
    for number in range(len(result.tiers)):
        tier = result.tiers[number]
        waiting, result.left = _sellable(tier, result.left)
        before = len(result.nodes)
        if any(t.reserved for t in tier):
            tier, waiting = _use_reserved(tier, waiting, order, result)
        bought_from = _buy_of_tier(tier, waiting, order, result)
        result.tiers = [_with_limits_left(tier, bought_from) for tier in result.tiers]
        result.tiers[number] = bought_from
        for node in result.nodes[before:]:
            result.served_by[number] += len(node.pods)


def _with_limits_left(tier: Iterable[Template], others: Iterable[Template]) -> list[Template]:
    """Return the templates of a tier with no more left of each limit that they share than the `others` have."""
    least: dict[tuple[str, str] | None, int] = {}
    for template in others:
        for name, left in (*template.remaining.items(), *template.reservations.items()):
            key = template.shared_key(name)
            least[key] = min(left, least.get(key, left))
    least.pop(None, None)

    def lowered(template: Template, limits: Resources) -> Resources:
        return Resources(
            {n: min(left, least.get(template.shared_key(n), left)) for n, left in limits.items()}
        )

    def with_limits(template: Template) -> Template:
        left = lowered(template, template.remaining), lowered(template, template.reservations)
        if left == (template.remaining, template.reservations):
            return template
        return replace(template, remaining=left[0], reservations=left[1])

    return list(map(with_limits, tier)) if least else list(tier)


def _use_reserved(
    tier: Sequence[Template], demands: list[Demand], order: Order, result: Purchase
) -> tuple[list[Template], list[Demand]]:
    """Buy reserved capacity; return the templates with the limits and reservations left, and the demands left.

    Once any of it is used, no lower bound is claimed: the choice of pods for it affects what the rest costs.
    """
    set_aside, result.left = result.left, []
    stage = [
        replace(t, type_options=t.reserved, committed=NO_OPTIONS, remaining=t.remaining + t.reservations)
        if t.reserved
        else replace(t, type_options=NO_OPTIONS, committed=NO_OPTIONS)
        for t in tier
    ]
    before = len(result.nodes)
    after = _buy_of_tier(stage, demands, order, result)
    result.is_bounded = result.is_bounded and len(result.nodes) == before
    unserved, result.left = result.left, set_aside
    templates = [
        replace(
            t,
            remaining=Resources({name: a.remaining.of(name) for name in t.remaining}),
            reservations=Resources({name: a.remaining.of(name) for name in t.reservations}),
        )
        for t, a in zip(tier, after, strict=True)
    ]
    return templates, unserved


def _sellable(tier: Iterable[Template], demands: Iterable[Demand]) -> tuple[list[Demand], list[Demand]]:
    """Split demands: those whose resources nodes of the tier have, and those that ask for other resources.

    Each resource name adds a dimension to every bin, and anyone who may create pods can invent any number of names.
    """
    resources = {
        n for template in tier for n in (*template.type_options.resources, *template.reserved.resources)
    }
    split: tuple[list[Demand], list[Demand]] = [], []
    for demand in demands:
        split[not demand.shape.requests.nonzero().keys() <= resources].append(demand)
    return split


def _freed(left: Iterable[Demand]) -> list[Demand]:
    """Return the fallbacks of demands that could not be bought, merged by shape and pins."""
    freed: dict[tuple[Shape, FrozenMap[str]], Demand] = {}
    for demand in left:
        if demand.fallback is not None:
            same = demand.fallback.shape, demand.fallback.pins
            merged = freed.get(same, demand.fallback)
            freed[same] = replace(merged, pods=(*merged.pods, *demand.pods))
    return list(freed.values())


def _buy_of_tier(
    tier: list[Template], demands: Sequence[Demand], order: Order, result: Purchase
) -> list[Template]:
    """Buy for demands from the templates of one tier; return these with what is left of their limits.

    If a node leaves too few choices for minValues, pack everything again without such nodes. After a few times, or at
    once if there are many pods, buy the nodes that are not refused first.
    """
    few = sum(len(demand.pods) for demand in demands) <= _FEW_PODS
    is_choosy = any(r.min_values for t in tier for r in t.requirements.values())
    cuts = list(order.learned.cuts) if is_choosy else []
    for number in range(_MOST_PACKINGS):
        if not demands:
            break
        problem = packing_problem(tier, demands, order.choices)
        if any(template.least_nodes for template in tier):
            problem = least_nodes_first(problem)
        if few and is_choosy and not number:
            cuts = find_cuts(problem, cuts, order, result)
        packed = filled(without_cuts(problem, cuts) if cuts else problem, order, result)
        cuts += packed.refused
        if packed.refused and few and number < _AGAIN:
            continue
        if not packed.refused:
            packed = made_less_fragile(with_fewer_nodes(packed, order, result), order, result)
        tier, demands = _buy_packed_nodes(tier, problem, packed, order, result)
        if not packed.refused:
            break
    result.left += demands
    return tier


def _buy_packed_nodes(
    tier: list[Template], problem: PackingProblem, packed: PackedNodes, order: Order, result: Purchase
) -> tuple[list[Template], list[Demand]]:
    """Buy the packed nodes that are not refused; return the templates with their limits left, and the demands left."""
    limits = packed.offered.limits
    left_of_limits = {number: list(limit) for number, limit in limits.vectors.items()}
    demands = packed.offered.demands
    queues = [list(d.pods) for d in demands]
    for node, options, amounts in packed.entries:
        if options.offers:
            _buy_nodes(demands, node, options, queues, result)
            for axis, amount in enumerate(amounts):
                left_of_limits[node.bin.limit][axis] -= amount * node.repeats
    if not problem.is_settled:
        result.bound_hourly_usd += _bound(tier, problem, packed, queues, order)
    unserved = [replace(d, pods=tuple(q)) for d, q in zip(demands, queues, strict=True) if q]
    remaining = [
        replace(t, remaining=Resources(dict(zip(sorted(t.remaining), left, strict=True))))
        if (left := limits.own(t.name, tuple(left_of_limits.get(number, ()))))
        else t
        for number, t in zip(limits.number, tier, strict=True)
    ]
    return remaining, unserved


def _bound(
    tier: Sequence[Template],
    problem: PackingProblem,
    packed: PackedNodes,
    queues: Sequence[Sequence[Pod]],
    order: Order,
) -> float:
    """Return a lower bound on the price of nodes for the pods that are no longer in the queues."""
    is_whole = problem is packed.offered and not packed.refused and not order.choices.excluded
    if is_whole and not any(template.is_steered for template in tier):
        return packed.packing.bound
    plain = packing_problem(
        tier, problem.demands, pricing=Pricing.PRICE, known_prices=problem.commitment_prices
    )
    triples = zip(plain.items, plain.demands, queues, strict=True)
    served = [replace(item, count=item.count - len(queue) // d.unit) for item, d, queue in triples]
    return plain.bound(served)


def _buy_nodes(
    demands: Sequence[Demand], node: Node, options: Options, queues: list[list[Pod]], result: Purchase
) -> None:
    """Buy the repeats of a packed node; all of them have the same options."""
    served = tuple(demands[i] for i, _ in node.holds)
    for _ in range(node.repeats):
        pods: list[Pod] = []
        for i, number in node.holds:
            number *= demands[i].unit
            pods += queues[i][:number]
            del queues[i][:number]
        result.nodes.append(NodePurchase(options, served, tuple(pods)))
