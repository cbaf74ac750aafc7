"""Waste: what nodes cost beyond what their pods are worth, which is where money lies before anything is simulated.

Pods are worth what linear programming duality says: prices of a unit of each resource at which nothing that is sold is
a bargain (see packing's `resource_prices`). Buying anew for some pods costs their worth at least. So no set of nodes
can save more than its waste, and what the free room of all others is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.packing import resource_prices
from nodesmith.decisions.provisioning.purchase.packingproblem import packing_problem
from nodesmith.decisions.scheduling.demands import Demand, by_shape
from nodesmith.decisions.scheduling.nodes.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.resources import Resources


@dataclass(frozen=True, slots=True)
class Prices:
    """What a unit of each resource is worth, USD an hour."""

    units: Mapping[str, float]

    def worth(self, resources: Resources) -> float:
        """Return what amounts are worth; less than nothing is worth nothing."""
        return fsum(price * max(0, resources.of(name)) for name, price in self.units.items())

    def waste(self, one: Candidate) -> float:
        """Return what a node costs beyond what its pods are worth, less than 0 where it is a bargain."""
        return one.price_hourly_usd - fsum(self.worth(pod.shape.requests) for pod in one.pods)

    def free(self, existing_nodes: Iterable[ExistingNode]) -> float:
        """Return what the room that is free in these is worth."""
        return fsum(self.worth(existing.free) for existing in existing_nodes)


def prices(candidates: Sequence[Candidate], tiers: Iterable[Sequence[Template]]) -> Prices:
    """Find the prices for what the pods of these nodes may be sold."""
    pods = [pod for one in candidates for pod in one.pods]
    demands = [Demand(shape, tuple(alike)) for shape, alike in by_shape(pods)]
    offered = packing_problem([template for tier in tiers for template in tier], demands)
    if not offered.bins:
        return Prices({})
    found = resource_prices(offered.items, offered.bins)
    return Prices({name: price for name, price in zip(offered.dimensions, found, strict=True) if price > 0})
