"""Packing: which nodes, bought how often, hold these items at the lowest price.

This room knows vectors, prices and masks; it has never heard of Kubernetes. `pack` gives the nodes, `lower_bound` the
price below which no packing can go.
"""

from nodesmith.decisions.packing.bound import lower_bound, resource_prices
from nodesmith.decisions.packing.greedy import pack
from nodesmith.decisions.packing.pareto import undominated
from nodesmith.decisions.packing.problem import Bin, Item, Node, Packing, Vector

__all__ = [
    "Bin",
    "Item",
    "Node",
    "Packing",
    "Vector",
    "lower_bound",
    "pack",
    "resource_prices",
    "undominated",
]
