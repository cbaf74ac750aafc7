"""Instance types for scheduling: labels, resources and offerings, resolved for one EC2NodeClass.

Labels have keys of Kubernetes, Karpenter and EC2, and are also given as requirements. A device plugin may offer GPUs in
parts: by time slicing or MPS, or as MIG instances with names of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import assert_never

from nodesmith.model.apimachinery.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    OS,
    PARTITION,
    PLACEMENT_GROUP,
    REGION,
    TENANCY,
    WINDOWS_BUILD,
    ZONE,
    ZONE_ID,
)
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.capacity import (
    ATTACHABLE_EBS,
    UNLIMITED,
    allocatable,
    capacity,
    first_efa_card,
    overhead,
)
from nodesmith.model.ec2.catalog import (
    Accelerator,
    Catalog,
    InstanceFacts,
    Offering,
    StatedFacts,
    product,
    sold_as,
)
from nodesmith.model.kubernetes.devices import DeviceKind
from nodesmith.model.nodeclasses.instancesettings import AL2023
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import Image
from nodesmith.model.policies import NodeSettings

KUBERNETES_ARCH = {"x86_64": "amd64", "arm64": "arm64"}
"""Kubernetes' name by EC2's name of the architectures that nodes can have."""
_DEFAULT_SETTINGS = NodeSettings()


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An instance type, resolved for one NodeClass."""

    name: str
    labels: Mapping[str, str]
    """labels of every node of this type, without zone, zone id and capacity type, which come with the offering"""
    requirements: Requirements
    """all labels, including the offered zones and capacity types; DoesNotExist for a label that the type lacks"""
    capacity: Resources
    overhead: Resources
    allocatable: Resources
    offerings: tuple[Offering, ...]
    """what can be bought, cheapest first; empty if no price is known or the NodeClass cannot run on the type"""
    overlays: tuple[str, ...] = ()
    """the NodeOverlays that add to its capacity"""
    devices: tuple[tuple[DeviceKind, int], ...] = ()
    """devices of dynamic resource allocation that its nodes have, as far as it is declared or known"""

    def __hash__(self) -> int:
        return hash(self.name)


@lru_cache(maxsize=16)
def instance_types(
    catalog: Catalog, configuration: NodeConfiguration, settings: NodeSettings = _DEFAULT_SETTINGS
) -> tuple[InstanceType, ...]:
    """Return every type of the catalogue, resolved, sorted by name. Cached: equal arguments give the same objects."""
    return tuple(
        _resolve(catalog.facts[name], catalog, configuration, settings) for name in sorted(catalog.facts)
    )


def image_for(kind: InstanceType, images: Iterable[Image]) -> Image | None:
    """Return the first image that boots on this type, None if there is none."""
    return next((image for image in images if kind.requirements.conflict(image.requirements) is None), None)


def _resolve(
    facts: InstanceFacts | StatedFacts,
    catalog: Catalog,
    configuration: NodeConfiguration,
    settings: NodeSettings,
) -> InstanceType:
    offered = tuple(sorted(_offered_as(configuration, catalog, facts.name), key=by_price))
    match facts:
        case InstanceFacts():
            if not runs_on(facts, configuration, settings):
                offered = ()
            room = capacity(facts, configuration, settings)
            reserved = overhead(facts, configuration, room, settings)
            labels = ec2_labels(facts, catalog.region, configuration)
            needs = ec2_requirements(labels, offered)
        case StatedFacts():
            room, reserved = Resources({ATTACHABLE_EBS: UNLIMITED, **facts.capacity}), facts.overhead
            labels = stated_labels(facts, catalog.region)
            needs = stated_requirements(facts, labels, offered)
        case _:
            assert_never(facts)
    present = {key: value for key, value in labels.items() if value is not None}
    return InstanceType(facts.name, present, needs, room, reserved, allocatable(room, reserved), offered)


def _offered_as(configuration: NodeConfiguration, catalog: Catalog, name: str) -> Iterator[Offering]:
    """Yield a type's available offerings, with the prices of the operating system and of each tenancy."""
    for tenancy_ in configuration.tenancies:
        product_name = product(windows=configuration.windows, dedicated=tenancy_ == DEDICATED_TENANCY)
        yield from (o for o in sold_as(catalog, name, product_name) if o.available)


def runs_on(facts: InstanceFacts, configuration: NodeConfiguration, settings: NodeSettings) -> bool:
    """Return whether an instance of this type can be launched and run with the NodeClass's configuration.

    In an IPv6 cluster, only instances on Nitro can: no other gets an IPv6 prefix for its pods.
    """
    if settings.ipv6 and facts.hypervisor == "xen":
        return False
    if configuration.windows and facts.arch != "amd64":
        return False
    if configuration.ami_family == AL2023 and facts.name.startswith("a1."):
        return False
    if configuration.connection_tracking and facts.hypervisor != "nitro":
        return False
    if configuration.nested_virtualization and not facts.nested_virtualization:
        return False
    return not configuration.network_interfaces or _has_interfaces(facts, configuration)


def _has_interfaces(facts: InstanceFacts, configuration: NodeConfiguration) -> bool:
    interfaces = configuration.network_interfaces
    efa_cards = [i.network_card_index for i in interfaces if i.interface_type == "efa-only"]
    on_card = Counter(i.network_card_index for i in interfaces)
    most = facts.card_interfaces or facts.interfaces
    return (
        facts.ena
        and len(efa_cards) <= facts.efa_interfaces
        and all(card >= first_efa_card(facts.name) for card in efa_cards)
        and max(on_card) < facts.network_cards
        and all(count <= (most if card else facts.interfaces) for card, count in on_card.items())
    )


def by_price(offering: Offering) -> tuple[float, float, str, str]:
    """Return the key that sorts a type's offerings, cheapest first."""
    return offering.price_hourly_usd, offering.paid_hourly_usd, offering.zone, offering.capacity_type


_NAME = re.compile(r"([a-z]+)(?:-\d+tb)?(\d+)")
WINDOWS_BUILDS = {"Windows2019": "10.0.17763", "Windows2022": "10.0.20348", "Windows2025": "10.0.26100"}
"""AMI family → the Windows build of its nodes."""
DEDICATED_TENANCY = "dedicated"
ANY_TENANCY = Requirement(TENANCY, frozenset({"default", DEDICATED_TENANCY}))
"""What every instance type offers: hardware that is shared with other accounts, or that is not."""


def needs_dedicated(requirements: Mapping[str, Requirement]) -> bool:
    """Return whether requirements rule out shared hardware."""
    requirement = requirements.get(TENANCY)
    return (
        requirement is not None
        and not requirement.allows("default")
        and requirement.allows(DEDICATED_TENANCY)
    )


def ec2_labels(facts: InstanceFacts, region: str, configuration: NodeConfiguration) -> dict[str, str | None]:
    """Return the labels of every node of an EC2 instance type. The value is None for a label that it cannot have.

    Zone, zone id and capacity type are not included: they come with the offering.
    """
    family, _, size = facts.name.partition(".")
    parts = _NAME.match(family)
    gpu, accelerator = _only(facts.gpus), _only(_accelerators(facts))
    return {
        INSTANCE_TYPE: facts.name,
        ARCH: facts.arch,
        OS: "windows" if configuration.windows else "linux",
        WINDOWS_BUILD: WINDOWS_BUILDS.get(configuration.ami_family),
        REGION: region,
        **({} if configuration.placement_group else {PLACEMENT_GROUP: None, PARTITION: None}),
        "karpenter.k8s.aws/instance-category": parts[1] if parts else None,
        "karpenter.k8s.aws/instance-generation": parts[2] if parts else None,
        "karpenter.k8s.aws/instance-family": family,
        "karpenter.k8s.aws/instance-size": size or None,
        "karpenter.k8s.aws/instance-capability-flex": _flag("-flex" in family),
        "karpenter.k8s.aws/instance-cpu": str(facts.vcpus),
        "karpenter.k8s.aws/instance-cpu-manufacturer": facts.cpu_manufacturer or None,
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz": _number(facts.clock_mhz),
        "karpenter.k8s.aws/instance-memory": str(facts.memory_mib),
        "karpenter.k8s.aws/instance-ebs-bandwidth": _number(facts.ebs_bandwidth_mbps),
        "karpenter.k8s.aws/instance-network-bandwidth": _number(facts.network_bandwidth_mbps),
        "karpenter.k8s.aws/instance-hypervisor": facts.hypervisor,
        "karpenter.k8s.aws/instance-encryption-in-transit-supported": _flag(facts.encryption_in_transit),
        "karpenter.k8s.aws/instance-local-nvme": str(facts.local_storage_gb)
        if facts.local_storage_nvme
        else None,
        "karpenter.k8s.aws/instance-gpu-name": _kebab(gpu.name) if gpu else None,
        "karpenter.k8s.aws/instance-gpu-manufacturer": _kebab(gpu.manufacturer) if gpu else None,
        "karpenter.k8s.aws/instance-gpu-count": str(gpu.units) if gpu else None,
        "karpenter.k8s.aws/instance-gpu-memory": str(gpu.memory_mib) if gpu else None,
        "karpenter.k8s.aws/instance-accelerator-name": _kebab(accelerator.name) if accelerator else None,
        "karpenter.k8s.aws/instance-accelerator-manufacturer": _kebab(accelerator.manufacturer)
        if accelerator
        else None,
        "karpenter.k8s.aws/instance-accelerator-count": str(accelerator.count) if accelerator else None,
    }


def ec2_requirements(labels: Mapping[str, str | None], offered: Iterable[Offering]) -> Requirements:
    """Return the labels, and what the offerings add, as requirements. A label whose value is None must be absent."""
    return Requirements({**_fixed(labels), TENANCY: ANY_TENANCY, **_offered(offered)})


def stated_labels(facts: StatedFacts, region: str) -> dict[str, str | None]:
    """Return the labels of every node of a stated type, without an OS label if it has several operating systems."""
    systems = facts.operating_systems
    system = systems[0] if len(systems) == 1 else None
    basic = {INSTANCE_TYPE: facts.name, ARCH: facts.arch, OS: system}
    return {**facts.labels, **basic, **({REGION: region} if region else {})}


def stated_requirements(
    facts: StatedFacts, labels: Mapping[str, str | None], offered: Iterable[Offering]
) -> Requirements:
    """Return the labels, and what the operating systems and the offerings add, as requirements."""
    systems = Requirement(OS, frozenset(facts.operating_systems))
    return Requirements({**_fixed(labels), OS: systems, **_offered(offered)})


def _fixed(labels: Mapping[str, str | None]) -> dict[str, Requirement]:
    return {key: _single_value(key, value) for key, value in labels.items()}


def _offered(offered: Iterable[Offering]) -> dict[str, Requirement]:
    zones, zone_ids, capacity_types = set(), set(), set()
    for offering in offered:
        zones.add(offering.zone)
        zone_ids.add(offering.zone_id)
        capacity_types.add(offering.capacity_type)
    return {
        ZONE: _any(ZONE, frozenset(zones)),
        ZONE_ID: _any(ZONE_ID, frozenset(zone_ids - {""})),
        CAPACITY_TYPE: _any(CAPACITY_TYPE, frozenset(capacity_types)),
    }


def _accelerators(facts: InstanceFacts) -> tuple[Accelerator, ...]:
    """Return the accelerators. EC2 also lists Neuron devices as inference accelerators; they count once, as Neuron."""
    if facts.neuron_devices:
        return tuple(Accelerator(d.name, "aws", d.count) for d in facts.neuron_devices)
    return facts.inference_accelerators


def _only(accelerators: tuple[Accelerator, ...]) -> Accelerator | None:
    """Return the only kind of accelerator, None unless there is exactly one: labels can only describe one kind."""
    return accelerators[0] if len(accelerators) == 1 else None


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


@lru_cache(maxsize=16384)
def _single_value(key: str, value: str | None) -> Requirement:
    return Requirement(key, frozenset() if value is None else frozenset((value,)))


@lru_cache(maxsize=4096)
def _any(key: str, values: frozenset[str]) -> Requirement:
    return Requirement(key, values)


GPU = "nvidia.com/gpu"
_MOST = 128
_PART = re.compile(r"(nvidia\.com/[a-z0-9](?:[\w.-]{0,61}[a-z0-9])?)=([1-9]\d{0,2})", re.ASCII)
GpuParts = tuple[tuple[str, int], ...]
"""What the device plugin offers for each GPU: names of resources, with their numbers."""


def read_gpu_parts(text: str) -> GpuParts | None:
    """Read `nvidia.com/mig-1g.10gb=5,nvidia.com/mig-2g.20gb=1`; None if it is malformed or names a resource twice."""
    matches = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    parts = [(match[1], int(match[2])) for match in matches if match and int(match[2]) <= _MOST]
    if len(parts) < len(matches) or len({name for name, _ in parts}) < len(parts):
        return None
    return tuple(sorted(parts))


def with_parts(kind: InstanceType, parts: GpuParts) -> InstanceType:
    """Return the type with these resources for each of its GPUs instead of whole GPUs."""
    gpus = kind.capacity.of(GPU)
    if not gpus or not parts:
        return kind

    def offered(resources: Resources) -> Resources:
        remaining = {name: amount for name, amount in resources.items() if name != GPU}
        return Resources({**remaining, **{name: number * gpus for name, number in parts}})

    return replace(kind, capacity=offered(kind.capacity), allocatable=offered(kind.allocatable))


def all_with_parts(types: tuple[InstanceType, ...], parts: GpuParts) -> tuple[InstanceType, ...]:
    """Return types with these resources for each GPU. Cached: equal arguments give the same objects."""
    return _all_with_parts(types, parts) if parts else types


@lru_cache(maxsize=16)
def _all_with_parts(types: Iterable[InstanceType], parts: GpuParts) -> tuple[InstanceType, ...]:
    return tuple(with_parts(kind, parts) for kind in types)
