"""Buying for demands: tier by tier of NodePool weight, each packed at the lowest price it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from nodesmith.decisions.launch import Templates
from nodesmith.decisions.packing import Node, Vector, lower_bound
from nodesmith.decisions.provisioning.claims import another, claim_name, planned_node
from nodesmith.decisions.provisioning.flexibility import Options, options
from nodesmith.decisions.provisioning.fragility import sturdy
from nodesmith.decisions.provisioning.market import Market, Ware, market, purses
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

    A node that leaves too few choices for minValues is tried again with smaller types only, or bought another way.
    """
    ceilings: dict[tuple[str, str], int] = {}
    while demands:
        offered = market(tier, demands, order.choices, ceilings)
        tier, demands, refused = _buy_packed(tier, offered, order, result)
        if not refused:
            break
        for ware in refused:
            sold, size = _sold(ware), _size(ware)
            ceilings[sold] = min(size, ceilings.get(sold, size))
    result.left += demands
    return tier


def _size(ware: Ware) -> int:
    return ware.choice.type.capacity.cpu_milli


def _sold(ware: Ware) -> tuple[str, str]:
    return ware.template.name, ware.offering.capacity_type


def _buy_packed(
    tier: list[Template], offered: Market, order: Order, result: Purchase
) -> tuple[list[Template], list[Demand], list[Ware]]:
    """Pack once and buy; give the templates with their limits left, what is left to do, and what was refused."""
    packing = sturdy(offered, purses(tier), order.settings.fragility_tolerance)
    left_in_purses = dict(packing.purses)
    result.steps += packing.steps
    queues = [list(d.pods) for d in offered.demands]
    refused: list[Ware] = []
    for node in packing.nodes:
        purse = left_in_purses.get(node.bin.purse, ())
        taken = _buy_nodes(offered, node, queues, purse, order, result)
        if taken is None:
            refused.append(offered.wares[node.bin.key])
        if purse:
            triples = zip(purse, node.bin.cost, taken or (0,) * len(purse), strict=True)
            left = tuple(have + node.repeats * (cost - took) for have, cost, took in triples)
            left_in_purses[node.bin.purse] = left
    surcharged = any(t.pool.node_surcharge_hourly_usd for t in tier)
    result.bound_hourly_usd += _bound(offered, queues) if refused or surcharged else packing.bound
    rest = [replace(d, pods=tuple(q)) for d, q in zip(offered.demands, queues, strict=True) if q]
    remaining = [
        replace(t, remaining=Resources(dict(zip(sorted(t.remaining), left_in_purses[i], strict=True))))
        if i in left_in_purses
        else t
        for i, t in enumerate(tier)
    ]
    return remaining, rest, refused


def _bound(offered: Market, queues: Sequence[Sequence[Pod]]) -> float:
    """Give the bound of what is no longer in the queues."""
    triples = zip(offered.items, offered.demands, queues, strict=True)
    served = [replace(item, count=item.count - len(queue) // d.unit) for item, d, queue in triples]
    return lower_bound(served, offered.plain(offered.bins))


def _buy_nodes(
    offered: Market, node: Node, queues: list[list[Pod]], purse: Vector, order: Order, result: Purchase
) -> Vector | None:
    """Buy nodes that are all alike: what each may be is the same. Give None where they may be too little.

    Else what each takes of the NodePool's limits, of which the purse has so much left.
    """
    ware = offered.wares[node.bin.key]
    found, taken = _found(offered, node, purse, order.settings.min_values_policy)
    if ware.template.remaining or any(r.min_values for r in ware.template.requirements.values()):
        for i, _ in node.holds:
            order.choices.used(ware.template.name, offered.demands[i])
    if not found.wares:
        for demand in (offered.demands[i] for i, _ in node.holds):
            result.refusals[demand.shape, demand.zone, ware.template.name] = Refusal(
                Filter.MIN_VALUES, found.refusal, "minValues", "lower minValues, or allow more instance types"
            )
        return None
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
    return taken


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
