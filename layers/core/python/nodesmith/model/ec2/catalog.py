"""The catalogue of a region: facts about instance types, and offerings with their prices.

The offerings are those of Linux on shared hardware. Windows (with its licence) and dedicated hardware have prices of
their own: `sold_as` returns them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import ON_DEMAND, OS, TENANCY
from nodesmith.model.apimachinery.quantities import Resources

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
    dedicated: bool = field(default=False, repr=False)
    """True if the instance runs on hardware that is not shared with other accounts; no catalogue contains it"""
    overlay: str = field(default="", repr=False)
    """the NodeOverlay that sets its price, and `listed_hourly_usd` is AWS's; only decisions set both"""
    listed_hourly_usd: float = field(default=0.0, repr=False)
    commitment: str = field(default="", repr=False)
    """the pool of commitments that pays for it, of which it takes `commitment_use`; only decisions set both.

    Its price is then 0, and `listed_hourly_usd` is what AWS charges beyond the commitments.
    """
    commitment_use: int = field(default=0, repr=False)

    @property
    def cost_hourly_usd(self) -> float:
        """Price plus risk, by which decisions choose offerings."""
        return self.price_hourly_usd + self.risk_hourly_usd

    def has_tenancy(self, *, dedicated: bool) -> bool:
        """Return whether it is bought with this tenancy; a capacity reservation has its own."""
        return bool(self.reservation) or self.dedicated == dedicated

    @property
    def paid_hourly_usd(self) -> float:
        """What AWS charges for it without commitments, whatever a NodeOverlay says."""
        return self.listed_hourly_usd if self.overlay or self.commitment else self.price_hourly_usd

    @property
    def costs(self) -> tuple[float, float]:
        """Cost and what AWS charges: offerings of the same cost, by a NodeOverlay, are ordered by the latter."""
        return self.cost_hourly_usd, self.paid_hourly_usd


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
    card_interfaces: int | None = None
    """network interfaces of each card but the default one, the fewest if they differ; None if there is one card"""


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


LINUX, WINDOWS, DEDICATED, DEDICATED_WINDOWS = "linux", "windows", "dedicated", "dedicated-windows"
PRODUCTS = (LINUX, WINDOWS, DEDICATED, DEDICATED_WINDOWS)
"""What has prices of its own: operating systems, on shared and on dedicated hardware."""
_WITH_WINDOWS, _ON_DEDICATED = (WINDOWS, DEDICATED_WINDOWS), (DEDICATED, DEDICATED_WINDOWS)


def product(*, windows: bool, dedicated: bool) -> str:
    """Return the name of what is bought."""
    return PRODUCTS[windows + 2 * dedicated]


def product_of(labels: Mapping[str, str]) -> str:
    """Return what was bought for a node with these labels."""
    return product(windows=labels.get(OS) == "windows", dedicated=labels.get(TENANCY) == "dedicated")


@dataclass(frozen=True, slots=True)
class ProductPrices:
    """Current prices per hour of one product.

    A place is a region, or the price list's code for local zones or wavelength zones. Anything that a known place does
    not list is not sold there. Linux on shared hardware has prices here for places other than the region.
    """

    on_demand: Mapping[str, Mapping[str, float]] = field(default_factory=FrozenMap)
    """by place and type"""
    zones: tuple[str, ...] = ()
    spot: Mapping[str, tuple[float, ...]] = field(default_factory=FrozenMap)
    """by type: a price for each of `zones`, 0 where it is not sold"""


NO_PRICES = ProductPrices()


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
    prices: Mapping[str, ProductPrices] = field(default_factory=FrozenMap)
    """by product, as far as AWS has been asked; estimates stand in for the others"""

    @classmethod
    def of(
        cls,
        region: str,
        made_at: datetime,
        facts: Mapping[str, InstanceFacts | StatedFacts],
        offerings: Mapping[str, tuple[Offering, ...]],
        currency: str = "USD",
        prices: Mapping[str, ProductPrices] | None = None,
    ) -> Catalog:
        """Return a catalogue with the `ref` of its content, whatever the order of types and offerings."""
        prices = prices or {}
        content = hashlib.sha256(repr((region, currency, sorted(facts.items()))).encode())
        for name in sorted(offerings):
            content.update(repr((name, sorted(map(repr, offerings[name])))).encode())
        for name, product_prices in sorted(prices.items()):
            on_demand = [
                (place, sorted(listed.items())) for place, listed in sorted(product_prices.on_demand.items())
            ]
            spot = [(kind, *row) for kind, row in sorted(product_prices.spot.items())]
            content.update(repr((name, on_demand, product_prices.zones, spot)).encode())
        return cls(
            region, f"{region}-{content.hexdigest()[:16]}", made_at, facts, offerings, currency, prices
        )

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


_LOCAL = re.compile(r"(.+-\d+)[a-z]")
_WAVELENGTH = re.compile(r"(.+-wl\d+-[a-z]+)-wlz-(\d+)")


def place_of(zone: str, region: str) -> str:
    """Return the code under which the price list has a zone's prices.

    This is the region, or the group of a local zone (us-west-2-lax-1 for us-west-2-lax-1a). For a wavelength zone,
    it is us-east-1-wl1-nyc1 for us-east-1-wl1-nyc-wlz-1.
    """
    if zone[:-1] == region:
        return region
    if wavelength := _WAVELENGTH.fullmatch(zone):
        return wavelength[1] + wavelength[2]
    local = _LOCAL.fullmatch(zone)
    return local[1] if local else region


_LICENCE_PER_VCPU = {"USD": 0.046, "CNY": 0.33}
"""What Windows costs for each vCPU of most types per hour; an estimate as long as the price is unknown."""
_DEDICATED_SHARE = 1.1
"""The usual ratio of the dedicated to the shared on-demand price; an estimate as long as the price is unknown."""


def sold_as(catalog: Catalog, name: str, product_name: str) -> tuple[Offering, ...]:
    """Return a type's offerings as one product, with that product's prices; none without a price.

    A price that AWS has not been asked for is estimated from that of Linux on shared hardware. AWS publishes no spot
    prices for dedicated hardware: they are estimated by the ratio of the on-demand prices.
    """
    offered, facts = catalog.offerings.get(name, ()), catalog.facts.get(name)
    if product_name == LINUX or not isinstance(facts, InstanceFacts):
        return offered
    shared = {o.zone: o.price_hourly_usd for o in offered if o.capacity_type == ON_DEMAND}
    offerings = []
    for offering in offered:
        linux = shared.get(offering.zone, 0.0)
        if offering.capacity_type == ON_DEMAND:
            price, estimated = _on_demand_as(product_name, catalog, facts, offering.zone, linux)
        else:
            price, estimated = _spot_as(product_name, catalog, facts, offering, linux)
        if 0 < price < inf:
            dedicated = product_name in _ON_DEDICATED
            offerings.append(
                replace(offering, price_hourly_usd=round(price, 9), estimated=estimated, dedicated=dedicated)
            )
    return tuple(offerings)


def _on_demand_as(
    product_name: str, catalog: Catalog, facts: InstanceFacts, zone: str, linux: float
) -> tuple[float, bool]:
    """Return the on-demand price, 0 where it is not sold, and whether it is an estimate."""
    if product_name == LINUX:
        return linux, False
    listed = catalog.prices.get(product_name, NO_PRICES).on_demand
    for place, is_estimate in ((place_of(zone, catalog.region), False), (catalog.region, True)):
        if place in listed:
            return listed[place].get(facts.name, 0.0), is_estimate
    if not linux:
        return 0.0, True
    share = _DEDICATED_SHARE if product_name in _ON_DEDICATED and ".metal" not in facts.name else 1.0
    return linux * share + (_licence(catalog, facts) if product_name in _WITH_WINDOWS else 0.0), True


def _spot_as(
    product_name: str, catalog: Catalog, facts: InstanceFacts, offering: Offering, linux: float
) -> tuple[float, bool]:
    """Return the spot price, 0 where it is not sold, and whether it is an estimate."""
    price, estimated = offering.price_hourly_usd, offering.estimated
    if product_name in _WITH_WINDOWS:
        windows_prices = catalog.prices.get(WINDOWS, NO_PRICES)
        price, estimated = price + _licence(catalog, facts), True
        if windows_prices.spot:
            spot_by_zone = dict(
                zip(windows_prices.zones, windows_prices.spot.get(facts.name, ()), strict=False)
            )
            price, estimated = spot_by_zone.get(offering.zone, 0.0), False
    if product_name in _ON_DEDICATED:
        base, _ = _on_demand_as(
            WINDOWS if product_name in _WITH_WINDOWS else LINUX, catalog, facts, offering.zone, linux
        )
        dedicated, _ = _on_demand_as(product_name, catalog, facts, offering.zone, linux)
        price, estimated = (price * dedicated / base if base else 0.0), True
    return price, estimated


def _licence(catalog: Catalog, facts: InstanceFacts) -> float:
    return _LICENCE_PER_VCPU.get(catalog.currency, 0.0) * facts.vcpus
