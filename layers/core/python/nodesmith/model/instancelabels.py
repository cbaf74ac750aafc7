"""The labels of an instance type, as requirements: Kubernetes', Karpenter's and its AWS provider's keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from nodesmith.model.capacity import NodeConfiguration
from nodesmith.model.catalog import Accelerator, InstanceFacts, KwokFacts, Offering
from nodesmith.model.labels import (
    ARCH,
    AWS_DOMAIN,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    OS,
    REGION,
    WINDOWS_BUILD,
    ZONE,
    ZONE_ID,
)
from nodesmith.model.requirements import Requirement, Requirements

_NAME = re.compile(r"([a-z]+)(?:-\d+tb)?(\d+)")
_WINDOWS_BUILDS = {"Windows2019": "10.0.17763", "Windows2022": "10.0.20348", "Windows2025": "10.0.26100"}
_OF_THE_OFFERING = frozenset({ZONE, ZONE_ID, CAPACITY_TYPE})


def requirements(
    facts: InstanceFacts, offered: Iterable[Offering], region: str, configuration: NodeConfiguration
) -> Requirements:
    """Give the requirements of an EC2 instance type; a label without a value is DoesNotExist."""
    family, _, size = facts.name.partition(".")
    parts = _NAME.match(family)
    category, generation = parts.groups() if parts else (None, None)
    aws = {
        "instance-category": category,
        "instance-generation": generation,
        "instance-family": family,
        "instance-size": size or None,
        "instance-capability-flex": _flag("-flex" in family),
        "instance-cpu": facts.vcpus,
        "instance-cpu-manufacturer": facts.cpu_manufacturer or None,
        "instance-cpu-sustained-clock-speed-mhz": facts.clock_mhz,
        "instance-memory": facts.memory_mib,
        "instance-ebs-bandwidth": facts.ebs_bandwidth_mbps,
        "instance-network-bandwidth": facts.network_bandwidth_mbps,
        "instance-hypervisor": facts.hypervisor,
        "instance-encryption-in-transit-supported": _flag(facts.encryption_in_transit),
        "instance-local-nvme": facts.local_storage_gb if facts.local_storage_nvme else None,
        **_accelerator("gpu", facts.gpus),
        **_accelerator("accelerator", _accelerators(facts)),
    }
    aws.pop("instance-accelerator-memory")
    return Requirements(
        {
            **{f"{AWS_DOMAIN}/{name}": _one(f"{AWS_DOMAIN}/{name}", value) for name, value in aws.items()},
            _TENANCY.key: _TENANCY,
            OS: _one(OS, "windows" if configuration.windows else "linux"),
            WINDOWS_BUILD: _one(WINDOWS_BUILD, _WINDOWS_BUILDS.get(configuration.ami_family)),
            **_shared(facts.name, facts.arch, offered, region),
        }
    )


def kwok_requirements(facts: KwokFacts, offered: Iterable[Offering], region: str) -> Requirements:
    """Give the requirements of an instance type from a KWOK file."""
    return Requirements(
        {
            **{key: _one(key, value) for key, value in facts.labels.items()},
            OS: _any(OS, frozenset(facts.operating_systems)),
            **_shared(facts.name, facts.arch, offered, region),
        }
    )


def single_valued(requirements: Requirements) -> dict[str, str]:
    """Give the labels that every node of the type carries, whatever the offering it was bought by."""
    return {
        key: next(iter(needed.values))
        for key, needed in requirements.by_key.items()
        if len(needed.values) == 1 and key not in _OF_THE_OFFERING
    }


def _shared(name: str, arch: str, offered: Iterable[Offering], region: str) -> dict[str, Requirement]:
    zones, zone_ids, capacity_types = set(), set(), set()
    for offering in offered:
        zones.add(offering.zone)
        capacity_types.add(offering.capacity_type)
        if offering.zone_id:
            zone_ids.add(offering.zone_id)
    return {
        INSTANCE_TYPE: Requirement(INSTANCE_TYPE, frozenset((name,))),
        ARCH: _one(ARCH, arch),
        REGION: _one(REGION, region or None),
        ZONE: _any(ZONE, frozenset(zones)),
        ZONE_ID: _any(ZONE_ID, frozenset(zone_ids)),
        CAPACITY_TYPE: _any(CAPACITY_TYPE, frozenset(capacity_types)),
    }


def _accelerators(facts: InstanceFacts) -> tuple[Accelerator, ...]:
    """EC2 lists Neuron devices among the inference accelerators as well; they count once, as Neuron's."""
    if facts.neuron_devices:
        return tuple(Accelerator(d.name, "aws", d.count) for d in facts.neuron_devices)
    return facts.inference_accelerators


def _accelerator(kind: str, found: tuple[Accelerator, ...]) -> dict[str, str | int | None]:
    """Only a type with one kind of accelerator can be labelled with it."""
    only = found[0] if len(found) == 1 else None
    return {
        f"instance-{kind}-name": _kebab(only.name) if only else None,
        f"instance-{kind}-manufacturer": _kebab(only.manufacturer) if only else None,
        f"instance-{kind}-count": only.count if only else None,
        f"instance-{kind}-memory": only.memory_mib if only else None,
    }


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def _flag(value: bool) -> str:
    return "true" if value else "false"


@lru_cache(maxsize=16384)
def _one(key: str, value: str | int | None) -> Requirement:
    return Requirement(key, frozenset() if value is None else frozenset((str(value),)))


@lru_cache(maxsize=4096)
def _any(key: str, values: frozenset[str]) -> Requirement:
    return Requirement(key, values)


_TENANCY = Requirement(f"{AWS_DOMAIN}/instance-tenancy", frozenset({"default", "dedicated"}))
