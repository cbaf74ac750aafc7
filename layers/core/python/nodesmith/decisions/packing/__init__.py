"""Choose which bins (nodes) to buy, and how many of each, so that they hold all items at the lowest price.

This package knows vectors, prices and bit masks, and nothing about Kubernetes. `pack` returns the nodes and a lower
bound on the price of any packing; `lower_bound` returns the bound alone. `docs/algorithms/packing.md` walks through the
algorithm.
"""

from nodesmith.decisions.packing.bound import commitment_prices, lower_bound, resource_prices, tight_bound
from nodesmith.decisions.packing.problem import Bin, Item, Limits, Node, Packing, Vector
from nodesmith.decisions.packing.reduction import Skyline, undominated
from nodesmith.decisions.packing.solve import GOOD_ENOUGH, PartPlans, pack

__all__ = [
    "GOOD_ENOUGH",
    "Bin",
    "Item",
    "Limits",
    "Node",
    "Packing",
    "PartPlans",
    "Skyline",
    "Vector",
    "commitment_prices",
    "lower_bound",
    "pack",
    "resource_prices",
    "tight_bound",
    "undominated",
]
