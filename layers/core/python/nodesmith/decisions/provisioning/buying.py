"""Buying for demands: tier by tier of NodePool weight, each packed at the lowest price it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count

from nodesmith.decisions.packing import Node, lower_bound, pack
from nodesmith.decisions.provisioning.claims import claim_name, planned_node
from nodesmith.decisions.provisioning.flexibility import Option, options
from nodesmith.decisions.provisioning.market import Market, market, purses
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.model.nodeclassstatus import ClusterInfo
from nodesmith.model.pods import Pod
from nodesmith.model.resources import Resources, total


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
    packing, left_in_purses = pack(offered.items, offered.bins, purses(tier))
    served = [
        replace(item, count=item.count - left) for item, left in zip(offered.items, packing.left, strict=True)
    ]
    result.bound_hourly_usd += lower_bound(served, offered.bins)
    result.steps += packing.steps
    queues = [list(d.pods) for d in demands]
    for node in packing.nodes:
        for _ in range(node.repeats):
            _buy_node(offered, node, queues, order, numbers, result)
    for demand, left in zip(demands, queues, strict=True):
        if left:
            result.left.append(replace(demand, pods=tuple(left)))
    return [
        replace(t, remaining=Resources(dict(zip(sorted(t.remaining), left_in_purses[i], strict=True))))
        if i in left_in_purses
        else t
        for i, t in enumerate(tier)
    ]


def _buy_node(
    offered: Market, node: Node, queues: list[list[Pod]], order: Order, numbers: count[int], result: Purchase
) -> None:
    ware = offered.ware(node.bin)
    taken = [(i, queues[i][:n]) for i, n in enumerate(node.counts) if n]
    pods = tuple(pod for _, mine in taken for pod in mine)
    demands = sum(1 << i for i, _ in taken)
    requests = total([offered.demands[i].shape.requests.times(len(mine)) for i, mine in taken])
    chosen: Option = ware.choice, ware.offering
    admission = offered.admission[ware.template.name]
    found = options(ware.template, admission, demands, requests, chosen, "metal" in ware.choice.type.name)
    if not found.options:
        result.refusals.update({offered.demands[i]: found.refusal for i, _ in taken})
        return
    name = claim_name(ware.template.name, order.decision, next(numbers))
    planned = planned_node(ware.template, found.options, pods, name, order.decision, order.cluster, order.now)
    result.nodes.append(planned)
    for index, mine in taken:
        del queues[index][: len(mine)]
