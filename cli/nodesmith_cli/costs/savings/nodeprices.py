"""What each node costs: its instance type, zone and capacity type by its labels, and its price by the catalogue."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import fsum

from nodesmith.decisions.shadow.fleet import named, unpriced, zone_of_provider
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODEPOOL,
    REGION,
    RESERVED,
    SPOT,
    ZONE,
    normalised,
)
from nodesmith.model.ec2.catalog import Catalog, Offering
from nodesmith.model.kubernetes.nodes import Node
from nodesmith_cli.costs.savings.owners import Owner, owner_of
from nodesmith_formats.prices import HOURS_A_MONTH, Price, PriceOf, prices

_REGION_OF_ZONE = re.compile(r"([a-z]{2,}(?:-[a-z]+)+-\d+)(?:[a-z]|-.+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class PricedNode:
    """A node with its price in USD an hour; `price` is None if it is unknown, and `unknown` is then the reason.

    `is_assumed` is True if no label names its capacity type, so that on-demand is assumed.
    """

    node: Node
    owner: Owner
    price: Price | None
    unknown: str = ""
    is_assumed: bool = False

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def instance_type(self) -> str:
        return self.node.labels.get(INSTANCE_TYPE, "")

    @property
    def zone(self) -> str:
        return self.node.labels.get(ZONE, "")

    @property
    def capacity_type(self) -> str:
        return self.node.labels.get(CAPACITY_TYPE, "")

    @property
    def hourly_usd(self) -> float:
        """Its price, 0 if it is unknown."""
        return self.price.hourly_usd if self.price else 0.0


def region_of_nodes(nodes: Iterable[Node]) -> str:
    """Return the region that most nodes are in by their labels or provider ids; empty if none names one."""
    counts = Counter(filter(None, map(_region, nodes)))
    return min(counts, key=lambda name: (-counts[name], name)) if counts else ""


def _region(node: Node) -> str:
    labels = {normalised(key): value for key, value in node.labels.items()}
    if labels.get(REGION):
        return labels[REGION]
    match = _REGION_OF_ZONE.fullmatch(labels.get(ZONE) or zone_of_provider(node))
    return match[1] if match else ""


def priced_nodes(
    nodes: Iterable[Node],
    catalog: Catalog,
    marked: Iterable[str] = (),
    *,
    has_cluster_autoscaler: bool = False,
) -> list[PricedNode]:
    """Return every node with its owner and price, by name. `marked` are provider ids that nodesmith launched.

    The Nodes get the current labels for instance type, zone and capacity type, whichever labels their software uses.
    """
    price_of, marked_ids = prices(catalog), frozenset(marked) - {""}
    priced = []
    for node in sorted(nodes, key=lambda node: node.name):
        is_marked = node.provider_id in marked_ids
        owner = owner_of(node.labels, marked=is_marked, has_cluster_autoscaler=has_cluster_autoscaler)
        current, assumed = named(node)
        priced.append(_priced(current, owner, catalog, price_of, assumed=assumed))
    return priced


def _priced(node: Node, owner: Owner, catalog: Catalog, price_of: PriceOf, *, assumed: bool) -> PricedNode:
    kind, zone, sold = (node.labels.get(key, "") for key in (INSTANCE_TYPE, ZONE, CAPACITY_TYPE))
    unknown = _obstacle(node, owner, catalog)
    if unknown:
        return PricedNode(node, owner, None, unknown, assumed)
    if sold == RESERVED:
        return PricedNode(node, owner, Price(0.0), "", assumed)
    price = price_of(node.labels)
    if price is None:
        unknown = f"the catalogue of {catalog.region} has no {sold} price for {kind} in zone {zone or '?'}"
    return PricedNode(node, owner, price, unknown, assumed)


def _obstacle(node: Node, owner: Owner, catalog: Catalog) -> str:
    """Return why a node cannot have a price in the catalogue; empty if it may."""
    if not owner.is_ec2:
        return f"{owner.software} is not priced by instance"
    return unpriced(node, catalog)


def with_spot_prices(catalog: Catalog, current: Mapping[tuple[str, str], float]) -> Catalog:
    """Return the catalogue with current spot prices by type and zone in place of estimates."""

    def today(name: str, offering: Offering) -> Offering:
        price = current.get((name, offering.zone)) if offering.capacity_type == SPOT else None
        return replace(offering, price_hourly_usd=price, estimated=False) if price else offering

    offerings = {
        name: tuple(today(name, offering) for offering in sold) for name, sold in catalog.offerings.items()
    }
    return Catalog.of(catalog.region, catalog.made_at, catalog.facts, offerings, catalog.currency)


def total_hourly_usd(nodes: Iterable[PricedNode]) -> float:
    """Return what nodes cost an hour, without those of unknown price."""
    return fsum(node.hourly_usd for node in nodes)


def monthly(hourly_usd: float) -> float:
    """Return USD a month of 730 hours."""
    return hourly_usd * HOURS_A_MONTH


def nodepool_of(node: PricedNode) -> str:
    """Return the NodePool of a node that nodesmith can take over, or an empty string."""
    return node.node.labels.get(NODEPOOL, "") if node.owner.is_ours else ""
