"""Waste: what nodes cost beyond the worth of their pods. It shows where money can be saved, before any simulation.

Pods are valued at dual prices of linear programming: prices per unit of each resource at which no node that can be
bought holds more than its price is worth (see packing's `resource_prices`). New nodes for some pods cost at least the
pods' worth. A set of nodes therefore saves at most its waste plus the worth of the free capacity of all other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.packing import resource_prices
from nodesmith.decisions.provisioning.purchase.packingproblem import packing_problem
from nodesmith.decisions.scheduling.demands import Demand, by_shape
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.resources import Resources


@dataclass(frozen=True, slots=True)
class Prices:
    """The dual price of a unit of each resource, in USD an hour."""

    units: Mapping[str, float]

    def worth(self, resources: Resources) -> float:
        """Return the worth of these amounts; negative amounts count as 0."""
        return fsum(price * max(0, resources.of(name)) for name, price in self.units.items())

    def waste(self, one: Candidate) -> float:
        """Return what a node costs beyond the worth of its pods, in USD an hour; negative if it costs less."""
        return one.price_hourly_usd - fsum(self.worth(pod.shape.requests) for pod in one.pods)

    def free(self, existing_nodes: Iterable[ExistingNode]) -> float:
        """Return the worth of the free capacity of these nodes."""
        return fsum(self.worth(existing.free) for existing in existing_nodes)


def prices(candidates: Sequence[Candidate], tiers: Iterable[Sequence[Template]]) -> Prices:
    """Return the dual prices for the pods of these nodes, given what may be bought for them."""
    pods = [pod for one in candidates for pod in one.pods]
    demands = [Demand(shape, tuple(alike)) for shape, alike in by_shape(pods)]
    offered = packing_problem([template for tier in tiers for template in tier], demands)
    if not offered.bins:
        return Prices({})
    found = resource_prices(offered.items, offered.bins)
    return Prices({name: price for name, price in zip(offered.dimensions, found, strict=True) if price > 0})
