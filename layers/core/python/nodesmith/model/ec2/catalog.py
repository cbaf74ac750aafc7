"""The catalogue of a region: facts about instance types, and offerings with their prices.

Current data from AWS are merged into it so that a failed call does not lose known data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.apimachinery.resources import Resources

_SPOT_SHARE = 0.35
"""share of the on-demand price, by the usual discount, for an unknown spot price"""


def estimated_spot_price(on_demand_hourly: float) -> float:
    """Return an estimate for an unknown spot price, rounded to 9 decimals to hide floating-point noise."""
    return round(on_demand_hourly * _SPOT_SHARE, 9)


@dataclass(frozen=True, slots=True)
class Offering:
    """One way to buy an instance type.

    `price_hourly_usd` is in the catalogue's currency if that is not USD (the China regions bill in CNY). `estimated` is
    True if the price is an estimate for an unknown one. An offering that is not `available` is only listed; a resolved
    `InstanceType` leaves it out.
    """

    zone: str
    capacity_type: str
    price_hourly_usd: float
    estimated: bool = False
    zone_id: str = ""
    available: bool = True
    reservation: str = ""
    """id of the capacity reservation, if the capacity type is reserved"""
    risk_hourly_usd: float = 0.0
    """the expected cost of its interruptions; only decisions set it, no catalogue contains it"""
    overlay: str = field(default="", repr=False)
    """the NodeOverlay that sets its price, and `listed_hourly_usd` is AWS's; only decisions set both"""
    listed_hourly_usd: float = field(default=0.0, repr=False)

    @property
    def cost_hourly_usd(self) -> float:
        """Price plus risk, by which decisions choose offerings."""
        return self.price_hourly_usd + self.risk_hourly_usd

    @property
    def paid_hourly_usd(self) -> float:
        """What AWS charges for it, whatever a NodeOverlay says."""
        return self.listed_hourly_usd if self.overlay else self.price_hourly_usd


@dataclass(frozen=True, slots=True)
class Accelerator:
    """GPUs or inference accelerators of one kind, with name and manufacturer in EC2's spelling."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int = 0

    @property
    def units(self) -> int:
        """The number that a node has for pods. EC2 counts 0 where there is a share of a GPU (g6f): that is one."""
        return max(1, self.count)


@dataclass(frozen=True, slots=True)
class NeuronDevice:
    """AWS Neuron devices of one kind."""

    name: str
    count: int
    cores_per_device: int


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """Facts about an instance type from EC2 (DescribeInstanceTypes), and two facts that no API provides.

    None stands for a fact that EC2 does not state.
    """

    name: str
    arch: str
    """amd64 or arm64"""
    vcpus: int
    memory_mib: int
    capacity_types: tuple[str, ...]
    """on-demand, spot: how EC2 sells the type, whether or not a price is known"""
    interfaces: int
    """network interfaces of the default network card"""
    ipv4_per_interface: int
    network_cards: int = 1
    efa_interfaces: int = 0
    ena: bool = True
    encryption_in_transit: bool = False
    hypervisor: str = "nitro"
    """nitro, xen, or empty on bare metal"""
    cpu_manufacturer: str = ""
    clock_mhz: int | None = None
    nested_virtualization: bool = False
    ebs_bandwidth_mbps: int | None = None
    local_storage_gb: int = 0
    local_storage_nvme: bool = False
    gpus: tuple[Accelerator, ...] = ()
    inference_accelerators: tuple[Accelerator, ...] = ()
    neuron_devices: tuple[NeuronDevice, ...] = ()
    network_bandwidth_mbps: int | None = None
    """baseline bandwidth from AWS documentation, else the sum of the cards' baselines"""
    branch_interfaces: int = 0
    """trunking limit; published only by the VPC resource controller"""
    ebs_attachments: int | None = None
    """maximum number of attached EBS volumes, including the root volume"""
    ebs_attachments_shared: bool = False
    """True if network interfaces beyond the first count against `ebs_attachments`"""


@dataclass(frozen=True, slots=True)
class StatedFacts:
    """An instance type whose capacity and labels are stated in a file, so that nothing needs to be computed."""

    name: str
    arch: str
    operating_systems: tuple[str, ...]
    capacity: Resources
    overhead: Resources
    labels: Mapping[str, str | None]
    """further labels; the value is None for a label that its nodes do not have"""


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """Everything that can be bought in a region. Catalogues with the same `ref` are equal."""

    region: str
    ref: str
    """content hash: the same facts and offerings have the same ref"""
    made_at: datetime
    facts: Mapping[str, InstanceFacts | StatedFacts]
    offerings: Mapping[str, tuple[Offering, ...]]
    """by instance type; a type without a known price has none"""
    currency: str = "USD"

    @classmethod
    def of(
        cls,
        region: str,
        made_at: datetime,
        facts: Mapping[str, InstanceFacts | StatedFacts],
        offerings: Mapping[str, tuple[Offering, ...]],
        currency: str = "USD",
    ) -> Catalog:
        """Return a catalogue with the `ref` of its content, whatever the order of types and offerings."""
        content = hashlib.sha256(repr((region, currency, sorted(facts.items()))).encode())
        for name in sorted(offerings):
            content.update(repr((name, sorted(map(repr, offerings[name])))).encode())
        return cls(region, f"{region}-{content.hexdigest()[:16]}", made_at, facts, offerings, currency)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)


@dataclass(frozen=True, slots=True)
class ListPrices:
    """On-demand prices per hour by instance type. `estimated` is True if they are those of another region."""

    hourly: Mapping[str, float]
    currency: str = "USD"
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class CatalogUpdate:
    """Current data about a region. A field is None if the data could not be fetched."""

    facts: Mapping[str, InstanceFacts] | None = None
    zones: Mapping[str, str] | None = None
    """zone ids by zone name"""
    offered: Mapping[str, frozenset[str]] | None = None
    """zone names by type"""
    on_demand: Mapping[str, float] | None = None
    spot: Mapping[tuple[str, str], float] | None = None
    """by type and zone name"""


def merge(
    known: Catalog, catalog_update: CatalogUpdate, list_prices: ListPrices, made_at: datetime
) -> Catalog:
    """Return the updated catalogue.

    An on-demand price is the current one, else the known one, else the list price. A spot price is the current one,
    else the known one; estimates are used only until spot prices have been fetched once. There is no offering without a
    price. AWS lists no on-demand prices for local zones and wavelength zones under their region: the region's prices
    stand in for them, as estimates.
    """
    facts: Mapping[str, InstanceFacts | StatedFacts] = catalog_update.facts or known.facts
    zone_ids = {o.zone: o.zone_id for offered in known.offerings.values() for o in offered}
    zone_ids.update(catalog_update.zones or {})
    offerings = {
        name: tuple(_offerings(one, known, catalog_update, list_prices, zone_ids))
        for name, one in facts.items()
        if isinstance(one, InstanceFacts)
    }
    sold = {name: offered for name, offered in offerings.items() if offered}
    return Catalog.of(known.region, made_at, facts, sold, known.currency)


def _offerings(
    facts: InstanceFacts,
    catalog: Catalog,
    catalog_update: CatalogUpdate,
    list_prices: ListPrices,
    zone_ids: Mapping[str, str],
) -> Iterator[Offering]:
    name, known = facts.name, catalog.offerings.get(facts.name, ())
    zones = (
        {o.zone for o in known}
        if catalog_update.offered is None
        else catalog_update.offered.get(name, frozenset())
    )
    on_demand, estimated = _on_demand(name, known, catalog_update, list_prices)
    told = {o.zone: o.price_hourly_usd for o in known if o.capacity_type == SPOT and not o.estimated}
    guess = catalog_update.spot is None and (
        not known or any(o.capacity_type == SPOT and o.estimated for o in known)
    )
    stand_in = estimated_spot_price(on_demand) if on_demand and guess else None
    for zone in sorted(zones):
        today = (catalog_update.spot or {}).get((name, zone)) or told.get(zone)
        spot = today or stand_in
        if on_demand and ON_DEMAND in facts.capacity_types:
            is_local = zone[:-1] != catalog.region
            yield Offering(zone, ON_DEMAND, on_demand, estimated or is_local, zone_ids.get(zone, ""))
        if spot and SPOT in facts.capacity_types:
            yield Offering(zone, SPOT, spot, today is None, zone_ids.get(zone, ""))


def _on_demand(
    name: str, known: tuple[Offering, ...], catalog_update: CatalogUpdate, list_prices: ListPrices
) -> tuple[float | None, bool]:
    """Return the price, None if unknown, and whether it is an estimate."""
    if catalog_update.on_demand and name in catalog_update.on_demand:
        return catalog_update.on_demand[name], False
    regional = sorted((o for o in known if o.capacity_type == ON_DEMAND), key=lambda o: o.estimated)
    offer = next(iter(regional), None)
    if offer:
        return offer.price_hourly_usd, offer.estimated
    return list_prices.hourly.get(name), list_prices.estimated
