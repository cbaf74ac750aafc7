"""Fragility: where it costs next to nothing, no node holds all pods of a kind.

A node may die at any moment. Of two or more pods alike that wait, at most half go to one node, as long as the whole
plan then costs no more than `fragility_tolerance` above the cheapest (a fraction of its price; 0 leaves every plan as
it is). Plans of more than 20 nodes are spread by their size. What stands against the loss of one spot pool is that
every node is asked for with at least 15 types, where there are as many.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nodesmith.decisions.packing import GOOD_ENOUGH, Packing, Purses, pack
from nodesmith.decisions.provisioning.market import Market

_FEW_NODES = 20


def sturdy(offered: Market, purses: Purses, tolerance: float, good_enough: float = GOOD_ENOUGH) -> Packing:
    """Pack what is demanded; where one node would hold all pods of a shape, two do if that costs about the same."""
    bounded = not any(
        demand.is_settled for demand in offered.demands
    )  # else a bound on this is none on all plans
    packing = pack(offered.items, offered.bins, purses, bounded=bounded, good_enough=good_enough)
    few = sum(node.repeats for node in packing.nodes) <= _FEW_NODES
    fragile = _alone(offered, packing) if tolerance and few else set()
    if not fragile:
        return packing
    halved = [
        replace(item, per_node=min(item.per_node, -(-item.count // 2))) if number in fragile else item
        for number, item in enumerate(offered.items)
    ]
    other = pack(halved, offered.bins, purses, bounded=False, good_enough=good_enough)
    steps = packing.steps + other.steps
    if sum(other.left) > sum(packing.left) or other.price > packing.price * (1 + tolerance):
        return replace(packing, steps=steps)
    return replace(other, bound=packing.bound, steps=steps)


def _alone(offered: Market, packing: Packing) -> set[int]:
    """Give the items of shapes that have two or more pods, all on one node."""
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
