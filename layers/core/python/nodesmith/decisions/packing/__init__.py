"""Packing: which nodes, bought how often, hold these items at the lowest price.

This room knows vectors, prices and masks; it has never heard of Kubernetes. `pack` gives the nodes and a price below
which no packing can go, `lower_bound` that price alone.
"""

from nodesmith.decisions.packing.bound import lower_bound, resource_prices
from nodesmith.decisions.packing.pareto import undominated
from nodesmith.decisions.packing.problem import Bin, Item, Limits, Node, Packing, Vector
from nodesmith.decisions.packing.solve import GOOD_ENOUGH, Known, pack

__all__ = [
    "GOOD_ENOUGH",
    "Bin",
    "Item",
    "Known",
    "Limits",
    "Node",
    "Packing",
    "Vector",
    "lower_bound",
    "pack",
    "resource_prices",
    "undominated",
]
