"""What can be bought in a region: facts about instance types, and the offerings with their prices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from nodesmith.model.apimachinery.resources import Resources

_SPOT_SHARE = 0.35
"""of the on-demand price: the usual discount, where nobody has told us a spot price"""


def estimated_spot_price(on_demand_hourly: float) -> float:
    """Return the price that stands in for an unknown spot price; rounded where floats would show their noise."""
    return round(on_demand_hourly * _SPOT_SHARE, 9)


@dataclass(frozen=True, slots=True)
class Offering:
    """One way to buy an instance type.

    `price_hourly_usd` is in the catalogue's currency where that is not USD (the China regions bill in CNY).
    `estimated` marks a stand-in for a price nobody has told us. An offering that is not `available` is listed
    only; a resolved `InstanceType` leaves it out.
    """

    zone: str
    capacity_type: str
    price_hourly_usd: float
    estimated: bool = False
    zone_id: str = ""
    available: bool = True
    reservation: str = ""
    """id of the capacity reservation, where the capacity type is reserved"""
    risk_hourly_usd: float = 0.0
    """what its interruptions are taken to cost beside: known to decisions only, no catalogue has it"""

    @property
    def cost_hourly_usd(self) -> float:
        """What it is chosen by."""
        return self.price_hourly_usd + self.risk_hourly_usd


@dataclass(frozen=True, slots=True)
class Accelerator:
    """GPUs or inference accelerators of one kind; name and manufacturer as EC2 spells them."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class NeuronDevice:
    """AWS Neuron devices of one kind."""

    name: str
    count: int
    cores_per_device: int


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """What EC2 says of an instance type (DescribeInstanceTypes), and two facts that no API tells.

    None stands for a fact EC2 does not state.
    """

    name: str
    arch: str
    """amd64 or arm64"""
    vcpus: int
    memory_mib: int
    capacity_types: tuple[str, ...]
    """on-demand, spot: how EC2 sells it, whether or not a price is known"""
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
    """baseline; from AWS documentation, else the sum of the cards' baselines"""
    branch_interfaces: int = 0
    """trunking limit; published only by the VPC resource controller"""
    ebs_attachments: int | None = None
    """most EBS volumes it takes, the root volume among them"""
    ebs_attachments_shared: bool = False
    """network interfaces beyond the first use up places, too"""


@dataclass(frozen=True, slots=True)
class StatedFacts:
    """An instance type whose capacity and labels a file states: nothing is left to compute."""

    name: str
    arch: str
    operating_systems: tuple[str, ...]
    capacity: Resources
    overhead: Resources
    labels: Mapping[str, str | None]
    """further labels; None for one that its nodes do not have"""


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """Everything that can be bought in a region. Equal to any catalogue with the same `ref`."""

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
        """Make a catalogue with the `ref` of its content; the order of types and offerings does not count."""
        content = hashlib.sha256(repr((region, currency, sorted(facts.items()))).encode())
        for name in sorted(offerings):
            content.update(repr((name, sorted(map(repr, offerings[name])))).encode())
        return cls(region, f"{region}-{content.hexdigest()[:16]}", made_at, facts, offerings, currency)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalog) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)
