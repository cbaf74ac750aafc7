"""Buying for demands: tier by tier of NodePool weight, each packed at the lowest price it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from nodesmith.decisions.launch import Templates
from nodesmith.decisions.packing import GOOD_ENOUGH, Node, Packing, Vector, lower_bound
from nodesmith.decisions.provisioning.claims import another, claim_name, planned_node
from nodesmith.decisions.provisioning.cuts import Cut, cut, without
from nodesmith.decisions.provisioning.flexibility import Options, options
from nodesmith.decisions.provisioning.fragility import sturdy
from nodesmith.decisions.provisioning.market import Market, market, purses
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.refusals import Filter, Refusal
from nodesmith.decisions.scheduling.choices import Choices
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.stock import NOTHING_SOLD
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.model.capacity import NodeSettings
from nodesmith.model.frozen import FrozenMap
from nodesmith.model.nodeclassstatus import ClusterInfo
from nodesmith.model.pods import Pod
from nodesmith.model.policies import MinValuesPolicy
from nodesmith.model.resources import Resources
from nodesmith.model.shapes import Shape

_FEW_PODS = 64
"""pods up to which everything is packed once more for a node that is refused"""
_AGAIN, _MOST_PACKINGS = 8, 24
_Basket = list[tuple[Node, Options, Vector]]
"""nodes of a packing, what each may be, and what it takes of its NodePool's limits"""


@dataclass(slots=True)
class Purchase:
    """What was bought, what is left, and why something that was tried did not go.

    `tiers` are the templates with what is left of their limits; `refusals` go by shape, zone and NodePool.
    """

    tiers: list[list[Template]] = field(default_factory=list)
    nodes: list[PlannedNode] = field(default_factory=list)
    left: list[Demand] = field(default_factory=list)
    refused: list[Demand] = field(default_factory=list)
    """what could not be bought as it was demanded; some of it may have been bought without the wishes in it"""
    refusals: dict[tuple[Shape, str | None, str], Refusal] = field(default_factory=dict)
    bound_hourly_usd: float = 0.0
    is_bounded: bool = True
    steps: int = 0
    given_up: int = 0
    """wishes of pods that were not granted"""
    served_by: Counter[int] = field(default_factory=Counter)
    """pods by the number of the tier that their nodes are bought of"""


@dataclass(frozen=True, slots=True)
class Order:
    """What stays the same for a whole decision; `numbers` count its nodes, `templates` keeps what they launch from."""

    decision: str
    cluster: ClusterInfo
    now: datetime
    settings: NodeSettings
    choices: Choices = field(default_factory=Choices)
    numbers: Iterator[int] = field(default_factory=count)
    templates: Templates = field(default_factory=Templates)
    good_enough: float = GOOD_ENOUGH


def buy(tiers: Sequence[Sequence[Template]], demands: Sequence[Demand], order: Order) -> Purchase:
    """Buy nodes for all demands that some tier can serve; heavier tiers come first and leave the rest to lighter.

    What they only wished for is given up when nothing could be bought so.
    """
    result = Purchase([list(tier) for tier in tiers], left=list(demands))
    _buy_everywhere(order, result)
    result.refused = result.left
    freed = _freed(result.left)
    if freed:
        result.given_up = sum(len(demand.pods) for demand in freed)
        kept = [d for d in result.left if d.fallback is None]
        result.left = freed
        _buy_everywhere(order, result)
        result.left += kept
    if not result.is_bounded:
        result.bound_hourly_usd = 0.0
    return result


def _buy_everywhere(order: Order, result: Purchase) -> None:
    """What is reserved is paid for anyway, and used first."""
    for number, tier in enumerate(result.tiers):
        waiting, result.left = _sellable(tier, result.left)
        before = len(result.nodes)
        if any(t.reserved for t in tier):
            tier, waiting = _use_reserved(tier, waiting, order, result)
        result.tiers[number] = _buy_of_tier(tier, waiting, order, result)
        for node in result.nodes[before:]:
            result.served_by[number] += len(node.claim.nominated)


def _use_reserved(
    tier: Sequence[Template], demands: list[Demand], order: Order, result: Purchase
) -> tuple[list[Template], list[Demand]]:
    """Buy what is reserved; give the templates with what is left of limits and reservations, and what is left to do.

    Once any of it is used no bound is claimed: which pods it serves is part of what the rest may cost.
    """
    kept, result.left = result.left, []
    stage = [
        replace(t, stock=t.reserved, remaining=t.remaining + t.reservations)
        if t.reserved
        else replace(t, stock=NOTHING_SOLD)
        for t in tier
    ]
    before = len(result.nodes)
    after = _buy_of_tier(stage, demands, order, result)
    result.is_bounded = result.is_bounded and len(result.nodes) == before
    left, result.left = result.left, kept
    templates = [
        replace(
            t,
            remaining=Resources({name: a.remaining.of(name) for name in t.remaining}),
            reservations=Resources({name: a.remaining.of(name) for name in t.reservations}),
        )
        for t, a in zip(tier, after, strict=True)
    ]
    return templates, left


def _sellable(tier: Iterable[Template], demands: Iterable[Demand]) -> tuple[list[Demand], list[Demand]]:
    """Split off demands for resources that no node of the tier has.

    Each name would be one more dimension of every bin, and whoever may create pods may think of any number of names.
    """
    sold = {n for template in tier for n in (*template.stock.resources, *template.reserved.resources)}
    split: tuple[list[Demand], list[Demand]] = [], []
    for demand in demands:
        split[not demand.shape.requests.nonzero().keys() <= sold].append(demand)
    return split


def _freed(left: Iterable[Demand]) -> list[Demand]:
    """Give what is to be demanded where wishes cannot be had, one a kind."""
    found: dict[tuple[Shape, FrozenMap[str]], Demand] = {}
    for demand in left:
        if demand.fallback is not None:
            same = demand.fallback.shape, demand.fallback.pins
            known = found.get(same, demand.fallback)
            found[same] = replace(known, pods=(*known.pods, *demand.pods))
    return list(found.values())


def _buy_of_tier(
    tier: list[Template], demands: Sequence[Demand], order: Order, result: Purchase
) -> list[Template]:
    """Buy for demands of the templates of one tier; give these with what is left of their limits.

    Where a node leaves too few choices for minValues, all is packed once more without such; what is bought in any case
    is bought after a few times at most, sooner where there is much.
    """
    cuts: list[Cut] = []
    few = sum(len(demand.pods) for demand in demands) <= _FEW_PODS
    for number in range(_MOST_PACKINGS):
        if not demands:
            break
        whole = market(tier, demands, order.choices)
        offered = without(whole, cuts) if cuts else whole
        packing = sturdy(offered, purses(tier), order.settings.fragility_tolerance, order.good_enough)
        result.steps += packing.steps
        basket = _basket(offered, packing, order, result)
        refused = [cut(offered, node) for node, found, _ in basket if not found.wares]
        cuts += dict.fromkeys(refused)
        if refused and few and number < _AGAIN:
            continue
        tier, demands = _buy_basket(tier, whole, offered, packing, basket, order, result)
        if not refused:
            break
    result.left += demands
    return tier


def _basket(offered: Market, packing: Packing, order: Order, result: Purchase) -> _Basket:
    """Give what each node may be, and what it takes of its NodePool's limits: nothing where it is refused."""
    left, basket = dict(packing.purses), []
    for node in packing.nodes:
        purse = left.get(node.bin.purse, ())
        found, taken = _found(offered, node, purse, order.settings.min_values_policy)
        ware = offered.wares[node.bin.key]
        is_limited = ware.template.remaining or any(r.min_values for r in ware.template.requirements.values())
        for demand in (offered.demands[i] for i, _ in node.holds):
            if is_limited:
                order.choices.used(ware.template.name, demand)
            if not found.wares:
                result.refusals[demand.shape, demand.zone, ware.template.name] = Refusal(
                    Filter.MIN_VALUES,
                    found.refusal,
                    "minValues",
                    "lower minValues, or allow more instance types",
                )
        taken = taken if found.wares else (0,) * len(purse)
        if purse:
            triples = zip(purse, node.bin.cost, taken, strict=True)
            left[node.bin.purse] = tuple(have + node.repeats * (cost - took) for have, cost, took in triples)
        basket.append((node, found, taken))
    return basket


def _buy_basket(
    tier: list[Template],
    whole: Market,
    offered: Market,
    packing: Packing,
    basket: _Basket,
    order: Order,
    result: Purchase,
) -> tuple[list[Template], list[Demand]]:
    """Buy what may be bought; give the templates with their limits left, and what is left to do."""
    left_in_purses = {index: list(purse) for index, purse in purses(tier).items()}
    queues = [list(d.pods) for d in offered.demands]
    for node, found, taken in basket:
        if found.wares:
            _buy_nodes(offered, node, found, queues, order, result)
            for axis, amount in enumerate(taken):
                left_in_purses[node.bin.purse][axis] -= amount * node.repeats
    exact = whole is offered and all(found.wares for _, found, _ in basket)
    surcharged = any(t.pool.node_surcharge_hourly_usd for t in tier)
    result.bound_hourly_usd += packing.bound if exact and not surcharged else _bound(whole, queues)
    rest = [replace(d, pods=tuple(q)) for d, q in zip(offered.demands, queues, strict=True) if q]
    remaining = [
        replace(t, remaining=Resources(dict(zip(sorted(t.remaining), left_in_purses[i], strict=True))))
        if i in left_in_purses
        else t
        for i, t in enumerate(tier)
    ]
    return remaining, rest


def _bound(offered: Market, queues: Sequence[Sequence[Pod]]) -> float:
    """Give the bound of what is no longer in the queues."""
    triples = zip(offered.items, offered.demands, queues, strict=True)
    served = [replace(item, count=item.count - len(queue) // d.unit) for item, d, queue in triples]
    return lower_bound(served, offered.plain(offered.bins))


def _buy_nodes(
    offered: Market, node: Node, found: Options, queues: list[list[Pod]], order: Order, result: Purchase
) -> None:
    """Buy nodes that are all alike: what each may be is the same."""
    ware = offered.wares[node.bin.key]
    first: PlannedNode | None = None
    asking = [offered.demands[i] for i, _ in node.holds]
    for _ in range(node.repeats):
        pods: list[Pod] = []
        for i, number in node.holds:
            number *= offered.demands[i].unit
            pods += queues[i][:number]
            del queues[i][:number]
        name = claim_name(ware.template.name, order.decision, next(order.numbers))
        if first is None:
            about = order.decision, order.cluster, order.now, order.templates
            first = bought = planned_node(found, asking, pods, name, *about)
        else:
            bought = another(first, ware.template, pods, name, order.cluster)
        result.nodes.append(bought)


def _found(offered: Market, node: Node, purse: Vector, policy: MinValuesPolicy) -> tuple[Options, Vector]:
    """Give what a node may be, and what it takes of limits: more than it needs where minValues cannot be had so."""
    ware, axes = offered.wares[node.bin.key], range(len(node.bin.room))
    size = tuple(sum(offered.items[i].size[axis] * n for i, n in node.holds) for axis in axes)
    holds, shelf = sum(1 << i for i, _ in node.holds), offered.shelves[ware.template.name]
    found = options(shelf, ware, holds, size, node.bin.cost, policy)
    if found.wares or not any(purse):
        return found, node.bin.cost
    most = tuple(cost + have // node.repeats for cost, have in zip(node.bin.cost, purse, strict=True))
    found = options(shelf, ware, holds, size, most, policy)
    return found, tuple(map(max, zip(*(shelf.cost(each) for each in found.wares), strict=True)))
