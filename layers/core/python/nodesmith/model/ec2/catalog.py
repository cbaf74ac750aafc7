"""The catalogue of a region: facts about instance types, and offerings with their prices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

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

    @property
    def cost_hourly_usd(self) -> float:
        """Price plus risk, by which decisions choose offerings."""
        return self.price_hourly_usd + self.risk_hourly_usd


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
