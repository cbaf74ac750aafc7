"""What nodes of every instance type leave for pods, by image family, against the published arithmetic.

The expected values are computed here from EC2's facts alone, in MiB and whole numbers, and share no code with the
product.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.nodeclasses.instancesettings import KubeletConfiguration
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, NodeConfiguration
from nodesmith.model.policies import NodeSettings

MIB, GIB = 2**20, 2**30
CATALOG = embedded_catalog()
WITHOUT_PRICES = replace(CATALOG, ref="without prices", offerings={})
"""What nodes leave for pods is independent of offerings, and resolving those takes longest."""
DISKS_GIB = {"AL2": 20, "AL2023": 20, "Bottlerocket": 20, "Custom": 20} | {
    f"Windows{year}": 50 for year in (2019, 2022, 2025)
}


class Case(NamedTuple):
    """Settings of an operator and of an EC2NodeClass; the kubelet's defaults unless given."""

    reserved_enis: int = 0
    max_pods: int | None = None
    pods_per_core: int | None = None
    kube_cpu_milli: int | None = None
    kube_memory_mib: int | None = None
    evicted_memory_percent: int | None = None


CASES = {
    "default": Case(),
    "custom networking": Case(reserved_enis=1),
    "custom kubelet": Case(0, 58, 8, 250, 900, 5),
    "as many pods as possible": Case(max_pods=737),
}


def expected(facts: InstanceFacts, family: str, case: Case) -> tuple[int, int, int, int]:
    """Return allocatable cpu in milli-cores, memory in bytes, ephemeral storage in bytes, and pods."""
    plain = facts.interfaces * (facts.ipv4_per_interface - 1) + 2
    left = max(facts.interfaces - case.reserved_enis, 0)
    pods = left * (facts.ipv4_per_interface - 1) + 2 if left else 0
    if family.startswith("Windows"):
        pods = 110
    pods = pods if case.max_pods is None else case.max_pods
    if case.pods_per_core and family != "Bottlerocket":
        pods = min(pods, case.pods_per_core * facts.vcpus)
    counted = pods if family == "Bottlerocket" or family.startswith("Windows") else plain
    mib = facts.memory_mib - (64 if facts.arch == "arm64" else 0)
    memory = mib - ceil(mib * MIB * 0.075 / 1024 / 1024)
    kube = 11 * counted + 255 if case.kube_memory_mib is None else case.kube_memory_mib
    percent = case.evicted_memory_percent
    evicted = 100 * MIB if percent is None else ceil(memory * MIB / 100 * percent)
    milli = facts.vcpus * 1000
    bands = (min(milli, 1000) * 6 // 100, min(max(milli - 1000, 0), 1000) // 100)
    upper = (min(max(milli - 2000, 0), 2000) // 200, max(milli - 4000, 0) // 400)
    cpu = sum((*bands, *upper)) if case.kube_cpu_milli is None else case.kube_cpu_milli
    disk = DISKS_GIB[family] * GIB
    return milli - cpu, memory * MIB - kube * MIB - evicted, disk - GIB - ceil(disk / 10), pods


def configuration(family: str, case: Case) -> NodeConfiguration:
    reserved = {}
    if case.kube_cpu_milli is not None:
        reserved = {"cpu": f"{case.kube_cpu_milli}m", "memory": f"{case.kube_memory_mib}Mi"}
    evicted = (
        {} if case.evicted_memory_percent is None else {"memory.available": f"{case.evicted_memory_percent}%"}
    )
    kubelet = KubeletConfiguration(
        max_pods=case.max_pods,
        pods_per_core=case.pods_per_core,
        kube_reserved=parse_resources(reserved),
        eviction_hard=FrozenMap(evicted),
    )
    return NodeConfiguration.of(EC2NodeClass("default", ami_family=family, kubelet=kubelet))


@pytest.mark.parametrize("family", DISKS_GIB)
@pytest.mark.parametrize("name", CASES)
def test_every_type_leaves_for_pods_what_the_arithmetic_says(name: str, family: str) -> None:
    case = CASES[name]
    settings = NodeSettings(reserved_enis=case.reserved_enis)
    wrong = []
    for kind in instance_types(WITHOUT_PRICES, configuration(family, case), settings):
        facts = CATALOG.facts[kind.name]
        assert isinstance(facts, InstanceFacts)
        cpu, memory, disk, pods = expected(facts, family, case)
        if memory < 0:  # nothing fits such a node, and it shows no pods
            assert kind.allocatable.pods == 0, kind.name
            continue
        left = kind.allocatable
        found = left.cpu_milli, left.memory_bytes, left.of("ephemeral-storage"), left.pods
        if found != (cpu, memory, disk, pods):
            wrong.append((kind.name, found, (cpu, memory, disk, pods)))
    assert wrong == []


def test_the_catalogue_is_whole() -> None:
    assert len(CATALOG.facts) > 1000


@pytest.mark.parametrize("family", [name for name in DISKS_GIB if name.startswith("Windows")])
def test_a_windows_node_has_an_address_for_each_pod_of_its_first_interface(family: str) -> None:
    for kind in instance_types(CATALOG, configuration(family, Case()), NodeSettings()):
        facts = CATALOG.facts[kind.name]
        assert isinstance(facts, InstanceFacts)
        assert kind.capacity.of("vpc.amazonaws.com/PrivateIPv4Address") == facts.ipv4_per_interface - 1
        assert kind.labels["kubernetes.io/os"] == "windows"
        assert bool(kind.offerings) <= (facts.arch == "amd64")
