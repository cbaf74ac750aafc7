"""The labels of an instance type, with keys of Kubernetes, Karpenter and EC2, and the same labels as requirements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

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
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.catalog import Accelerator, InstanceFacts, Offering, StatedFacts
from nodesmith.model.nodeclasses.nodeconfiguration import NodeConfiguration

_NAME = re.compile(r"([a-z]+)(?:-\d+tb)?(\d+)")
WINDOWS_BUILDS = {"Windows2019": "10.0.17763", "Windows2022": "10.0.20348", "Windows2025": "10.0.26100"}
"""AMI family → the Windows build of its nodes."""
ANY_TENANCY = Requirement(TENANCY, frozenset({"default", "dedicated"}))
"""What every instance type offers: hardware that is shared with other accounts, or that is not."""


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
    named = {INSTANCE_TYPE: facts.name, ARCH: facts.arch, OS: system}
    return {**facts.labels, **named, **({REGION: region} if region else {})}


def stated_requirements(
    facts: StatedFacts, labels: Mapping[str, str | None], offered: Iterable[Offering]
) -> Requirements:
    """Return the labels, and what the operating systems and the offerings add, as requirements."""
    systems = Requirement(OS, frozenset(facts.operating_systems))
    return Requirements({**_fixed(labels), OS: systems, **_offered(offered)})


def _fixed(labels: Mapping[str, str | None]) -> dict[str, Requirement]:
    return {key: _one(key, value) for key, value in labels.items()}


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


def _only(found: tuple[Accelerator, ...]) -> Accelerator | None:
    """Return the only kind of accelerator, None unless there is exactly one: labels can only describe one kind."""
    return found[0] if len(found) == 1 else None


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


@lru_cache(maxsize=16384)
def _one(key: str, value: str | None) -> Requirement:
    return Requirement(key, frozenset() if value is None else frozenset((value,)))


@lru_cache(maxsize=4096)
def _any(key: str, values: frozenset[str]) -> Requirement:
    return Requirement(key, values)
