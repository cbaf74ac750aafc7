"""From a packing problem to packed nodes: how demands are packed, what each node may be, what minValues refuse.

A node may fail at any moment. If two or more pods of a shape are pending, at most half of them go to one node, provided
that the whole plan costs at most `fragility_tolerance` more than the cheapest (a fraction of its price; 0 leaves every
plan as it is). This applies to plans of up to 20 nodes; larger ones are spread by their size. The protection against
losing one spot pool is that every node is requested with at least 15 types, where there are that many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from nodesmith.decisions.packing import Bin, Limits, Node, Packing, PartPlans, Vector, pack
from nodesmith.decisions.packing.problem import UNLIMITED
from nodesmith.decisions.provisioning.purchase.flexibility import Cut, Options, cut, options, without_cuts
from nodesmith.decisions.provisioning.purchase.order import LOWER_MIN_VALUES, Filter, Order, Purchase, Refusal
from nodesmith.decisions.provisioning.purchase.packingproblem import PackingProblem
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import shared_limit
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.policies import MinValuesPolicy

_MOST_SCOUTED = 16
_FEW_NODES = 20
_NODE_PRICES = 4, 2, 1
"""The extra prices of a node to try in turn, as multiples of its part of `few_nodes_tolerance`."""
_EXACT = 1 + 1e-9
"""How good a plan must be if a node counts so much that a share of its price hides all other prices."""


@dataclass(frozen=True, slots=True)
class PackedNodes:
    """A packing of the problem `offered`, with the options of each node and what it takes of its NodePool's limits.

    A node without options, for lack of minValues, is refused; a cut records what that teaches.
    """

    offered: PackingProblem
    packing: Packing
    entries: Sequence[tuple[Node, Options, Vector]]
    refused: Sequence[Cut]


def filled(offered: PackingProblem, order: Order, result: Purchase, *, quick: bool = False) -> PackedNodes:
    """Pack the demands; with `quick`, only to see what minValues refuse."""
    packing = pack(
        offered.items,
        offered.bins,
        offered.limits.vectors,
        bounded=not offered.is_settled,  # otherwise its bound does not hold for all plans
        good_enough=inf if quick or order.quick else _EXACT if offered.node_usd else order.good_enough,
        part_plans=order.learned.plans,
    )
    result.steps += packing.steps
    return _packed(offered, packing, order, result)


def find_cuts(offered: PackingProblem, known: Iterable[Cut], order: Order, result: Purchase) -> list[Cut]:
    """Return the known cuts, and what minValues refuse of quick plans, until they refuse nothing.

    Thorough plans are then seldom refused.
    """
    cuts = list(known)
    for _ in range(_MOST_SCOUTED):
        packed = filled(without_cuts(offered, cuts) if cuts else offered, order, result, quick=True)
        if not packed.refused:
            break
        cuts += packed.refused
    return cuts


def made_less_fragile(packed: PackedNodes, order: Order, result: Purchase) -> PackedNodes:
    """Return a packing of about the same price without all pods of a shape on one node, if there is one."""
    if order.quick or packed.offered.node_usd:
        return packed
    offered, tolerance = packed.offered, order.settings.fragility_tolerance
    alternative = less_fragile(
        offered, packed.packing, offered.limits.vectors, tolerance, order.good_enough, order.learned.plans
    )
    if alternative is None:
        return packed
    result.steps += alternative.steps
    repacked = _packed(offered, alternative, order, result)
    return packed if repacked.refused else repacked


def with_fewer_nodes(packed: PackedNodes, order: Order, result: Purchase) -> PackedNodes:
    """Return a packing with fewer nodes that costs little more (`few_nodes_tolerance`), if there is one.

    First with as few nodes as possible, then with lower and lower prices for each node. The last shares the tolerance
    among the nodes: as the new packing is no dearer with that price, it costs no more than the tolerance without it.
    """
    offered, tolerance, price = packed.offered, order.settings.few_nodes_tolerance, packed.packing.price
    number = sum(node.repeats for node in packed.packing.nodes)
    if not tolerance or order.quick or offered.node_usd or number < 2:
        return packed
    each_usd = tolerance * price / number
    for node_usd in (least_nodes_first(offered).node_usd, *(times * each_usd for times in _NODE_PRICES)):
        bins = with_node_usd(offered.bins, node_usd)
        alternative = pack(
            offered.items, bins, offered.limits.vectors, bounded=False, part_plans=order.learned.plans
        )
        result.steps += alternative.steps
        nodes = (replace(node, bin=with_node_usd([node.bin], -node_usd)[0]) for node in alternative.nodes)
        alternative = replace(alternative, nodes=tuple(nodes), bound=packed.packing.bound)
        is_worse = sum(alternative.left) > sum(packed.packing.left) or alternative.price > price * (
            1 + tolerance
        )
        if is_worse or sum(node.repeats for node in alternative.nodes) >= number:
            continue
        repacked = _packed(offered, alternative, order, result)
        if not repacked.refused:
            return repacked
    return packed


def least_nodes_first(offered: PackingProblem) -> PackingProblem:
    """Return the problem with so much added to each bin's price that no price is worth another node.

    A quick plan shows how many nodes suffice: with more than the price of all of these added, fewer nodes cost less.
    """
    alike = [replace(bin_, price=1.0, substitute=None) for bin_ in offered.bins]
    quick = pack(offered.items, alike, offered.limits.vectors, bounded=False, good_enough=inf)
    enough = sum(node.repeats for node in quick.nodes) + sum(quick.left)
    node_usd = dearer_than(enough, offered.bins)
    return replace(offered, bins=with_node_usd(offered.bins, node_usd), node_usd=node_usd)


def dearer_than(nodes: int, bins: Iterable[Bin]) -> float:
    """Return a price that is higher than that of so many nodes."""
    return (nodes + 1) * max((bin_.price for bin_ in bins), default=0.0) + 1.0


def with_node_usd(bins: Iterable[Bin], node_usd: float) -> tuple[Bin, ...]:
    """Return bins with so much added to each price, also to those of bins that take their place."""

    def dearer(one: Bin) -> Bin:
        instead = dearer(one.substitute) if one.substitute is not None else None
        price, unpaid = one.price + node_usd, one.unpaid_price + node_usd
        return replace(one, price=price, unpaid_price=unpaid, substitute=instead)

    return tuple(map(dearer, bins))


def _packed(offered: PackingProblem, packing: Packing, order: Order, result: Purchase) -> PackedNodes:
    limits_left, entries = dict(packing.limits), []
    to_come = Counter[int]()
    cache: _OptionsCache = {}
    for node in packing.nodes:
        to_come[node.bin.limit] += node.repeats
    for node in packing.nodes:
        limit = limits_left.get(node.bin.limit, ())
        policy, number = order.settings.min_values_policy, to_come[node.bin.limit]
        choice, taken = _choice(offered, node, limit, policy, number, cache)
        to_come[node.bin.limit] -= node.repeats
        offer = offered.offer(node.bin)
        is_limited = _is_limited(offer.template)
        for demand in (offered.demands[i] for i, _ in node.holds):
            if is_limited:
                order.choices.used(offer.template.name, demand)
            if not choice.offers:
                result.refusals[demand.shape, demand.zone, offer.template.name] = Refusal(
                    Filter.MIN_VALUES,
                    choice.refusal,
                    "minValues",
                    LOWER_MIN_VALUES,
                )
        taken = taken if choice.offers else (0,) * len(limit)
        if limit:
            triples = zip(limit, node.bin.cost, taken, strict=True)
            rest = (have + node.repeats * (cost - took) for have, cost, took in triples)
            limits_left[node.bin.limit] = tuple(rest)
        entries.append((node, choice, taken))
    refused = list(dict.fromkeys(cut(offered, node) for node, choice, _ in entries if not choice.offers))
    order.learned.learn(refused)
    return PackedNodes(offered, packing, entries, refused)


def _is_limited(template: Template) -> bool:
    """Return whether others may need more what a purchase takes: with limits, apart from commitments, or minValues."""
    limited = not all(map(_is_committed, template.remaining))
    return limited or any(r.min_values for r in template.requirements.values())


def _is_committed(name: str) -> bool:
    shared = shared_limit(name)
    return shared is not None and shared.is_of_commitments


_OptionsCache = dict[tuple[object, ...], Options]
"""Options of nodes by everything that they depend on."""


def _choice(
    offered: PackingProblem,
    node: Node,
    limit: Vector,
    policy: MinValuesPolicy,
    to_come: int,
    cache: _OptionsCache,
) -> tuple[Options, Vector]:
    """Return the options of a node, and what it takes of limits: more than it needs if minValues require that.

    It may take an equal share of the quotas and commitments that the `to_come` nodes leave: a request that may take no
    more than it needs names few types, and a quota is seldom as near as the limit of a NodePool. Of commitments, it is
    expected to take no more than it needs, because EC2 launches the cheapest type that it has.
    """
    offer, axes = offered.offer(node.bin), range(len(node.bin.capacity))
    size = tuple(sum(offered.items[i].size[axis] * n for i, n in node.holds) for axis in axes)
    holds = sum(1 << i for i, _ in node.holds)
    template_offers = offered.offers_by_template[offer.template.name]
    cost = offered.limits.own(offer.template.name, node.bin.cost)
    have = offered.limits.own(offer.template.name, limit)
    shared = [shared_limit(name) is not None for name in sorted(offer.template.remaining)] if have else ()
    shares = zip(cost, have, shared, strict=True)
    most = tuple(need + spare // to_come if is_quota else need for need, spare, is_quota in shares)
    if node.bin.key != node.bin.whole_key:  # commitments pay for a part, whatever it is
        most = tuple(
            UNLIMITED if _is_committed(name) else much
            for name, much in zip(sorted(offer.template.remaining), most, strict=True)
        )
    offers_key = offer.key, node.bin.key, *template_offers.offers_key(holds, size)

    def within(most: Vector) -> Options:
        key = most, *offers_key
        if key not in cache:
            cache[key] = options(template_offers, offer, holds, size, most, policy)
        return cache[key]

    choice = within(most)
    if not choice.offers and any(limit):
        most = tuple(need + spare // node.repeats for need, spare in zip(cost, have, strict=True))
        choice = within(most)
    if most == cost or not choice.offers:
        return choice, node.bin.cost
    names = sorted(offer.template.remaining)
    most = tuple(map(max, zip(*map(template_offers.cost, choice.offers), strict=True)))
    triples = zip(names, cost, most, strict=True)
    taken = tuple(need if _is_committed(name) else much for name, need, much in triples)
    return choice, offered.limits.spread(offered.limits.names.index(offer.template.name), taken)


def less_fragile(
    offered: PackingProblem,
    packing: Packing,
    limits: Limits,
    tolerance: float,
    good_enough: float,
    part_plans: PartPlans,
) -> Packing | None:
    """Return a plan with two nodes for each shape that this plan puts on one; None if that costs too much."""
    few = sum(node.repeats for node in packing.nodes) <= _FEW_NODES
    fragile = _alone(offered, packing) if tolerance and few else set()
    if not fragile:
        return None
    halved = [
        replace(item, per_node=min(item.per_node, -(-item.count // 2))) if number in fragile else item
        for number, item in enumerate(offered.items)
    ]
    alternative = pack(
        halved, offered.bins, limits, bounded=False, good_enough=good_enough, part_plans=part_plans
    )
    if sum(alternative.left) > sum(packing.left) or alternative.price > packing.price * (1 + tolerance):
        return None
    return replace(alternative, bound=packing.bound)


def _alone(offered: PackingProblem, packing: Packing) -> set[int]:
    """Return the items of shapes that have two or more pods, all on one node."""
    shapes = [demand.shape for demand in offered.demands]
    counts = Counter[object]()
    for demand in offered.demands:
        counts[demand.shape] += len(demand.pods)
    return {
        number
        for node in packing.nodes
        for number, count in node.holds
        if 1 < counts[shapes[number]] == count * offered.demands[number].unit
    }
