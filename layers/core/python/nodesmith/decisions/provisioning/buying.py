"""Buying for demands: tier by tier of NodePool weight, each packed at the lowest price it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from nodesmith.decisions.packing import Node, lower_bound, pack, resource_prices, undominated
from nodesmith.decisions.provisioning.claims import another, claim_name, planned_node
from nodesmith.decisions.provisioning.flexibility import options
from nodesmith.decisions.provisioning.market import Market, market, purses
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.model.nodeclassstatus import ClusterInfo
from nodesmith.model.pods import Pod
from nodesmith.model.resources import Resources


@dataclass(slots=True)
class Purchase:
    """What was bought, what is left, and why (by demand) something that was tried did not go."""

    nodes: list[PlannedNode] = field(default_factory=list)
    left: list[Demand] = field(default_factory=list)
    refusals: dict[Demand, str] = field(default_factory=dict)
    bound_hourly_usd: float = 0.0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What stays the same for a whole decision."""

    decision: str
    cluster: ClusterInfo
    now: datetime


def buy(tiers: Sequence[Sequence[Template]], demands: Sequence[Demand], order: Order) -> Purchase:
    """Buy nodes for all demands that some tier can serve; heavier tiers come first and leave the rest to lighter."""
    result = Purchase(left=list(demands))
    numbers = count()
    for tier in tiers:
        remaining = list(tier)
        waiting, result.left = result.left, []
        for company in sorted({d.company for d in waiting}):
            mine = [d for d in waiting if d.company == company]
            remaining = _buy_company(remaining, mine, order, numbers, result)
    return result


def _buy_company(
    tier: list[Template], demands: Sequence[Demand], order: Order, numbers: count[int], result: Purchase
) -> list[Template]:
    """Buy for demands that may share nodes; give the templates with what is left of their limits."""
    offered = market(tier, demands)
    candidates = undominated(offered.bins)
    prices = resource_prices(offered.items, candidates)
    packing, left_in_purses = pack(offered.items, candidates, prices, purses(tier))
    served = [
        replace(item, count=item.count - left) for item, left in zip(offered.items, packing.left, strict=True)
    ]
    result.bound_hourly_usd += lower_bound(served, candidates, prices)
    result.steps += packing.steps
    queues = [list(d.pods) for d in demands]
    for node in packing.nodes:
        _buy_nodes(offered, node, queues, order, numbers, result)
    for demand, left in zip(demands, queues, strict=True):
        if left:
            result.left.append(replace(demand, pods=tuple(left)))
    return [
        replace(t, remaining=Resources(dict(zip(sorted(t.remaining), left_in_purses[i], strict=True))))
        if i in left_in_purses
        else t
        for i, t in enumerate(tier)
    ]


def _buy_nodes(
    offered: Market, node: Node, queues: list[list[Pod]], order: Order, numbers: count[int], result: Purchase
) -> None:
    """Buy nodes that are all alike: what each may be is the same."""
    held = [i for i, n in enumerate(node.counts) if n]
    size = tuple(
        sum(offered.items[i].size[axis] * node.counts[i] for i in held) for axis in range(len(node.bin.room))
    )
    ware = offered.wares[node.bin.key]
    found = options(offered.shelves[ware.template.name], ware, sum(1 << i for i in held), size)
    if not found.wares:
        result.refusals.update({offered.demands[i]: found.refusal for i in held})
        return
    first: PlannedNode | None = None
    for _ in range(node.repeats):
        pods: list[Pod] = []
        for i in held:
            pods += queues[i][: node.counts[i]]
            del queues[i][: node.counts[i]]
        name = claim_name(ware.template.name, order.decision, next(numbers))
        if first is None:
            first = bought = planned_node(found.wares, pods, name, order.decision, order.cluster, order.now)
        else:
            bought = another(first, ware.template, pods, name, order.cluster)
        result.nodes.append(bought)
