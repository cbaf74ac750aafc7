"""Allocatable of every instance type, family and configuration equals the published arithmetic.

The arithmetic is derived here a second time, in whole numbers and from EC2's own DescribeInstanceTypes, so that neither
the facts that the catalogue keeps nor the product's formulas are trusted. Sources: EKS's kube-reserved by CPU and pods,
max-pods-calculator (prefix delegation: 16 addresses a slot; 110 pods, or 250 above 30 vCPUs), nodeadm (110 pods in IPv6
clusters), Karpenter v1.14 (memory less 7.5 %, in MiB, rounded up; arm64 less 64 MiB; eviction thresholds).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import moto.ec2
import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings
from tests import builders

_DESCRIBED = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
MIB, GIB = 2**20, 2**30
CUSTOM_KUBELET: Mapping[str, Any] = {
    "maxPods": 60,
    "podsPerCore": 7,
    "systemReserved": {"cpu": "150m", "memory": "200Mi", "ephemeral-storage": "1Gi"},
    "kubeReserved": {"cpu": "90m"},
    "evictionHard": {"memory.available": "5%", "nodefs.available": "15%"},
}


PLAIN = NodeSettings()


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration: the operator's settings, fields of the NodeClass, and how the arithmetic varies."""

    name: str
    settings: NodeSettings = PLAIN
    kubelet: Mapping[str, Any] | None = None
    raid: bool = False


CASES = (
    Case("default"),
    Case("one reserved interface", NodeSettings(reserved_enis=1)),
    Case("prefix delegation", NodeSettings(prefix_delegation=True)),
    Case("prefix delegation and custom networking", NodeSettings(prefix_delegation=True, reserved_enis=1)),
    Case("IPv6", NodeSettings(ipv6=True)),
    Case("custom kubelet", kubelet=CUSTOM_KUBELET),
    Case("custom kubelet, IPv6", NodeSettings(ipv6=True), CUSTOM_KUBELET),
    Case("instance store", raid=True),
)


@lru_cache
def described() -> dict[str, Mapping[str, Any]]:
    """Return EC2's description of each type that is in the catalogue too."""
    every: dict[str, Mapping[str, Any]] = json.loads(gzip.decompress(_DESCRIBED.read_bytes()))
    return {name: raw for name, raw in every.items() if name in embedded_catalog().facts}


@lru_cache
def without_prices() -> Catalog:
    """Return the catalogue without offerings, of which allocatable is independent: resolving them takes longest."""
    return replace(embedded_catalog(), ref="without prices", offerings={})


def share(amount: int, per_mille: int) -> int:
    """Return a share of an amount, rounded up."""
    return -(-amount * per_mille // 1000)


def reserved_milli(vcpus: int) -> int:
    """6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of all others, each rounded down."""
    cores = ((1, 600), (1, 100), (2, 50), (vcpus, 25))
    total, left = 0, vcpus
    for number, per_ten_thousand in cores:
        taken = min(number, left)
        total += taken * 1000 * per_ten_thousand // 10_000
        left -= taken
    return total


def interfaces(raw: Mapping[str, Any]) -> int:
    network = raw["NetworkInfo"]
    index = network.get("DefaultNetworkCardIndex", 0)
    for card in network.get("NetworkCards", ()):
        if card["NetworkCardIndex"] == index:
            return int(card["MaximumNetworkInterfaces"])
    return int(network["MaximumNetworkInterfaces"])


def classic_pods(raw: Mapping[str, Any], reserved: int, slot: int = 1) -> int:
    usable = max(interfaces(raw) - reserved, 0)
    slots = usable * (raw["NetworkInfo"]["Ipv4AddressesPerInterface"] - 1)
    return slots * slot + 2 if usable else 0


def pods(raw: Mapping[str, Any], family: str, case: Case) -> int:
    vcpus, settings = raw["VCpuInfo"]["DefaultVCpus"], case.settings
    if case.kubelet:
        most = 60
    elif family.startswith("Windows"):
        most = 110
    elif settings.ipv6:
        most = 110 if interfaces(raw) > settings.reserved_enis else 0
    elif settings.prefix_delegation and raw.get("Hypervisor") != "xen":
        most = min(classic_pods(raw, settings.reserved_enis, 16), 250 if vcpus > 30 else 110)
    else:
        most = classic_pods(raw, settings.reserved_enis)
    return min(most, 7 * vcpus) if case.kubelet and family != "Bottlerocket" else most


def counted_pods(raw: Mapping[str, Any], family: str, case: Case) -> int:
    """Return the pods for which the image reserves memory."""
    if family == "Bottlerocket" or family.startswith("Windows"):
        return pods(raw, family, case)
    classic = classic_pods(raw, 0)
    return max(classic, 110) if case.settings.ipv6 and family == "AL2023" else classic


def expected(raw: Mapping[str, Any], family: str, case: Case) -> dict[str, int]:
    vcpus = raw["VCpuInfo"]["DefaultVCpus"]
    mib = raw["MemoryInfo"]["SizeInMiB"]
    mib -= 64 if raw["ProcessorInfo"]["SupportedArchitectures"][0] == "arm64" else 0
    mib -= share(mib, 75)
    disk_gb = raw.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)
    root = 50 if family.startswith("Windows") else 20
    storage = disk_gb * 10**9 if case.raid and disk_gb else root * GIB
    kube_mib = 11 * counted_pods(raw, family, case) + 255
    if case.kubelet:
        left = {
            "cpu": vcpus * 1000 - 90 - 150,
            "memory": mib * MIB - (kube_mib + 200) * MIB - share(mib * MIB, 50),
            "ephemeral-storage": storage - 2 * GIB - share(storage, 150),
        }
    else:
        left = {
            "cpu": vcpus * 1000 - reserved_milli(vcpus),
            "memory": (mib - kube_mib - 100) * MIB,
            "ephemeral-storage": storage - GIB - share(storage, 100),
        }
    most = pods(raw, family, case)
    # A node that reserves more than it has takes no pods at all, whatever they request.
    most = most if min(left.values()) >= 0 else 0
    return {**{name: max(0, amount) for name, amount in left.items()}, "pods": most}


def devices(raw: Mapping[str, Any], family: str) -> dict[str, int]:
    """Return the devices of a type, without branch interfaces, which no API of EC2 has."""
    names = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
    neurons = raw.get("NeuronInfo", {}).get("NeuronDevices", ())
    found = {
        "vpc.amazonaws.com/efa": raw["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "aws.amazon.com/neuron": sum(each["Count"] for each in neurons),
        "aws.amazon.com/neuroncore": sum(e["Count"] * e["CoreInfo"]["Count"] for e in neurons[:1]),
    }
    for gpu in raw.get("GpuInfo", {}).get("Gpus", ()):
        name = names[gpu["Manufacturer"]]
        found[name] = found.get(name, 0) + (gpu["Count"] or 1)  # EC2 counts 0 for a share of a GPU
    if family.startswith("Windows"):
        private = raw["NetworkInfo"]["Ipv4AddressesPerInterface"] - 1
        found["vpc.amazonaws.com/PrivateIPv4Address"] = private
    return {name: count for name, count in found.items() if count}


def resolved(family: str, case: Case) -> Iterable[InstanceType]:
    spec: dict[str, Any] = {"amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}]}
    if case.kubelet:
        spec["kubelet"] = dict(case.kubelet)
    if case.raid:
        spec["instanceStorePolicy"] = "RAID0"
    configuration = NodeConfiguration.of(builders.nodeclass(**spec))
    kinds = instance_types(without_prices(), configuration, case.settings)
    return [kind for kind in kinds if kind.name in described()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_allocatable_of_every_type_equals_the_published_arithmetic(family: str, case: Case) -> None:
    wrong = {}
    for kind in resolved(family, case):
        right = expected(described()[kind.name], family, case)
        found = {name: kind.allocatable.of(name) for name in right}
        if found != right:
            wrong[kind.name] = found, right
    assert wrong == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_devices_of_every_type_are_those_that_ec2_describes(family: str) -> None:
    wrong = {}
    for kind in resolved(family, CASES[0]):
        right = devices(described()[kind.name], family)
        others = ("vpc.amazonaws.com/pod-eni",)
        found = {name: kind.capacity[name] for name in kind.capacity if "/" in name and name not in others}
        if found != right:
            wrong[kind.name] = found, right
    assert wrong == {}


def test_the_table_has_nearly_every_type_of_the_catalogue() -> None:
    assert len(described()) > 1300
    assert len(embedded_catalog().facts) - len(described()) < 20


@pytest.mark.parametrize(
    ("name", "family", "case", "right"),
    [
        ("t3.large", "AL2023", "default", (35, 1930, 6837 * MIB)),
        ("m5.large", "AL2023", "default", (29, 1930, 6903 * MIB)),
        ("c6g.large", "AL2", "default", (29, 1930, 3055 * MIB)),
        ("t3.large", "Bottlerocket", "one reserved interface", (24, 1930, (7577 - 519 - 100) * MIB)),
        ("m5.24xlarge", "AL2023", "prefix delegation", (250, 95690, None)),
        ("t3.nano", "AL2023", "prefix delegation", (34, 1930, None)),
    ],
)
def test_the_second_derivation_gives_known_values(
    name: str, family: str, case: str, right: tuple[int, int, int | None]
) -> None:
    chosen = next(each for each in CASES if each.name == case)
    found = expected(described()[name], family, chosen)
    most, milli, memory = right
    assert (found["pods"], found["cpu"]) == (most, milli)
    assert memory is None or found["memory"] == memory
