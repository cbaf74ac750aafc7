"""Fragility: where it costs next to nothing, no node holds all pods of a shape.

A node may fail at any moment. Of two or more pending pods of a shape, at most half go to one node, as long as the whole
plan then costs no more than `fragility_tolerance` above the cheapest (a fraction of its price; 0 leaves every plan as
it is). This applies to plans of up to 20 nodes; larger ones are spread by their size. The protection against losing one
spot pool is that every node is requested with at least 15 types, where there are that many.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nodesmith.decisions.packing import Known, Limits, Packing, pack
from nodesmith.decisions.provisioning.purchase.packingproblem import PackingProblem

_FEW_NODES = 20


def less_fragile(
    offered: PackingProblem,
    packing: Packing,
    limits: Limits,
    tolerance: float,
    good_enough: float,
    known: Known,
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
    other = pack(halved, offered.bins, limits, bounded=False, good_enough=good_enough, known=known)
    if sum(other.left) > sum(packing.left) or other.price > packing.price * (1 + tolerance):
        return None
    return replace(other, bound=packing.bound)


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
