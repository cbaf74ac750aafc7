"""What each node costs: its instance type, zone and capacity type by its labels, and its price by the catalogue."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import fsum

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    EKS_CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODEPOOL,
    ON_DEMAND,
    REGION,
    RESERVED,
    SPOT,
    ZONE,
    normalised,
)
from nodesmith.model.ec2.catalog import Catalog, Offering
from nodesmith.model.kubernetes.nodes import Node
from nodesmith_cli.savings.owners import Owner, owner_of
from nodesmith_formats.prices import HOURS_A_MONTH, Price, PriceOf, prices

_SOLD_AS: Mapping[str, Mapping[str, str]] = {
    EKS_CAPACITY_TYPE: {"SPOT": SPOT, "ON_DEMAND": ON_DEMAND, "CAPACITY_BLOCK": RESERVED},
    "spotinst.io/node-lifecycle": {"spot": SPOT, "od": ON_DEMAND},
    "scheduling.cast.ai/spot": {"true": SPOT},
    "node.kubernetes.io/lifecycle": {"spot": SPOT, "on-demand": ON_DEMAND},
    "node-lifecycle": {"spot": SPOT, "on-demand": ON_DEMAND},
    "lifecycle": {"Ec2Spot": SPOT, "OnDemand": ON_DEMAND},
}
"""Labels of other software that name a node's capacity type, with the meaning of their values."""
_PROVIDER_ID = re.compile(r"aws:///(?P<zone>[a-z0-9-]+)/i-[0-9a-z]+", re.ASCII)
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
    found = Counter(filter(None, map(_region, nodes)))
    return min(found, key=lambda name: (-found[name], name)) if found else ""


def _region(node: Node) -> str:
    labels = {normalised(key): value for key, value in node.labels.items()}
    if labels.get(REGION):
        return labels[REGION]
    match = _REGION_OF_ZONE.fullmatch(labels.get(ZONE) or _zone_of_provider(node))
    return match[1] if match else ""


def _zone_of_provider(node: Node) -> str:
    match = _PROVIDER_ID.fullmatch(node.provider_id)
    return match["zone"] if match else ""


def priced_nodes(
    nodes: Iterable[Node],
    catalog: Catalog,
    marked: Iterable[str] = (),
    *,
    has_cluster_autoscaler: bool = False,
) -> list[PricedNode]:
    """Return every node with its owner and price, by name. `marked` are provider ids that nodesmith launched.

    The Nodes have the current labels for instance type, zone and capacity type, whatever software named them.
    """
    price_of, known = prices(catalog), frozenset(marked) - {""}
    found = []
    for node in sorted(nodes, key=lambda node: node.name):
        is_marked = node.provider_id in known
        owner = owner_of(node.labels, marked=is_marked, has_cluster_autoscaler=has_cluster_autoscaler)
        named, assumed = _named(node)
        found.append(_priced(named, owner, catalog, price_of, assumed=assumed))
    return found


def _named(node: Node) -> tuple[Node, bool]:
    """Return a node with the current labels, and whether its capacity type is assumed."""
    labels = {normalised(key): value for key, value in node.labels.items()}
    labels.setdefault(ZONE, _zone_of_provider(node))
    sold, assumed = _sold_as(labels)
    return replace(node, labels=FrozenMap({**node.labels, **labels, CAPACITY_TYPE: sold})), assumed


def _sold_as(labels: Mapping[str, str]) -> tuple[str, bool]:
    """Return a node's capacity type, and whether it is assumed to be on-demand because no label names it."""
    stated = labels.get(CAPACITY_TYPE, "")
    if stated in CAPACITY_TYPES:
        return stated, False
    for key, values in _SOLD_AS.items():
        if labels.get(key) in values:
            return values[labels[key]], False
    return ON_DEMAND, True


def _priced(node: Node, owner: Owner, catalog: Catalog, price_of: PriceOf, *, assumed: bool) -> PricedNode:
    kind, zone, sold = (node.labels.get(key, "") for key in (INSTANCE_TYPE, ZONE, CAPACITY_TYPE))
    unknown = _obstacle(node, owner, kind, catalog)
    if unknown:
        return PricedNode(node, owner, None, unknown, assumed)
    if sold == RESERVED:
        return PricedNode(node, owner, Price(0.0), "", assumed)
    price = price_of(node.labels)
    if price is None:
        unknown = f"the catalogue of {catalog.region} has no {sold} price for {kind} in zone {zone or '?'}"
    return PricedNode(node, owner, price, unknown, assumed)


def _obstacle(node: Node, owner: Owner, kind: str, catalog: Catalog) -> str:
    """Return why a node cannot have a price in the catalogue; empty if it may."""
    if not owner.is_ec2:
        return f"{owner.software} is not priced by instance"
    if node.provider_id and not node.provider_id.startswith("aws://"):
        return f"its provider is {node.provider_id.partition(':')[0]}, not AWS"
    if not kind:
        return f"it has no label {INSTANCE_TYPE}"
    if kind not in catalog.facts:
        return f"its instance type {kind!r} is not in the catalogue of {catalog.region}"
    if not node.allocatable.cpu_milli or not node.allocatable.memory_bytes:
        return "its status has no allocatable cpu and memory"
    return ""


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
    return fsum(each.hourly_usd for each in nodes)


def monthly(hourly_usd: float) -> float:
    """Return USD a month of 730 hours."""
    return hourly_usd * HOURS_A_MONTH


def nodepool_of(each: PricedNode) -> str:
    """Return the NodePool of a node that nodesmith can take over, or an empty string."""
    return each.node.labels.get(NODEPOOL, "") if each.owner.is_ours else ""
