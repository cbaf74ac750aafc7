"""Facts about instance types that capacity and labels need, extracted from DescribeInstanceTypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.catalog import Accelerator, InstanceFacts, NeuronDevice

KUBERNETES_ARCH = {"x86_64": "amd64", "arm64": "arm64"}
"""Kubernetes' name by EC2's name of the architectures that nodes can have."""


@dataclass(frozen=True, slots=True)
class PublishedLimits:
    """Facts by instance type that DescribeInstanceTypes does not return."""

    network_bandwidth_mbps: Mapping[str, int]
    branch_interfaces: Mapping[str, int]


def instance_facts(described: Mapping[str, Any], limits: PublishedLimits) -> InstanceFacts | None:
    """Return the facts of one DescribeInstanceTypes entry, or None if Kubernetes nodes cannot use the type.

    Usable types have HVM virtualisation and an x86_64 or arm64 processor. Raises Rejected, naming the type, if EC2
    omits a fact that labels or capacity need.
    """
    try:
        return _facts(described, limits)
    except KeyError as missing:
        name = described.get("InstanceType", "?")
        raise Rejected(f"InstanceType/{name}: EC2 did not return {missing.args[0]}") from missing


def _facts(described: Mapping[str, Any], limits: PublishedLimits) -> InstanceFacts | None:
    name, processor, network = described["InstanceType"], described["ProcessorInfo"], described["NetworkInfo"]
    arch = next(filter(None, map(KUBERNETES_ARCH.get, processor["SupportedArchitectures"])), None)
    if arch is None or "hvm" not in described.get("SupportedVirtualizationTypes", ()):
        return None
    storage = described.get("InstanceStorageInfo", {})
    clock = processor.get("SustainedClockSpeedInGhz")
    return InstanceFacts(
        name=name,
        arch=arch,
        vcpus=described["VCpuInfo"]["DefaultVCpus"],
        memory_mib=described["MemoryInfo"]["SizeInMiB"],
        capacity_types=tuple(c for c in (ON_DEMAND, SPOT) if c in described["SupportedUsageClasses"]),
        interfaces=_default_card(network)["MaximumNetworkInterfaces"],
        ipv4_per_interface=network["Ipv4AddressesPerInterface"],
        network_cards=network.get("MaximumNetworkCards", 1),
        efa_interfaces=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        ena=network.get("EnaSupport") in ("required", "supported"),
        encryption_in_transit=network.get("EncryptionInTransitSupported", False),
        hypervisor=described.get("Hypervisor", ""),
        cpu_manufacturer=processor.get("Manufacturer", "").lower().replace(" ", "-"),
        clock_mhz=round(clock * 1000) if clock else None,
        nested_virtualization="nested-virtualization" in processor.get("SupportedFeatures", ()),
        ebs_bandwidth_mbps=_ebs_bandwidth_mbps(described.get("EbsInfo", {})),
        local_storage_gb=storage.get("TotalSizeInGB", 0),
        local_storage_nvme=storage.get("NvmeSupport") in ("required", "supported"),
        gpus=_accelerators(described.get("GpuInfo", {}).get("Gpus", ())),
        inference_accelerators=_accelerators(
            described.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
        ),
        neuron_devices=_neuron_devices(described.get("NeuronInfo", {})),
        network_bandwidth_mbps=limits.network_bandwidth_mbps.get(name) or _baseline_mbps(network),
        branch_interfaces=limits.branch_interfaces.get(name, 0),
        ebs_attachments=described.get("EbsInfo", {}).get("MaximumEbsAttachments"),
        ebs_attachments_shared=described.get("EbsInfo", {}).get("AttachmentLimitType") == "shared",
        card_interfaces=_other_cards(network),
    )


def _default_card(network: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the default card, whose interfaces alone carry pods. A type without cards counts as one card."""
    index = network.get("DefaultNetworkCardIndex", 0)
    cards = (c for c in network.get("NetworkCards", ()) if c["NetworkCardIndex"] == index)
    return next(cards, network)


def _other_cards(network: Mapping[str, Any]) -> int | None:
    index = network.get("DefaultNetworkCardIndex", 0)
    cards = (c for c in network.get("NetworkCards", ()) if c["NetworkCardIndex"] != index)
    return min((card["MaximumNetworkInterfaces"] for card in cards), default=None)


def _baseline_mbps(network: Mapping[str, Any]) -> int | None:
    gbps = [card.get("BaselineBandwidthInGbps") for card in network.get("NetworkCards", ())]
    return round(sum(gbps) * 1000) if gbps and None not in gbps else None


def _ebs_bandwidth_mbps(ebs: Mapping[str, Any]) -> int | None:
    if ebs.get("EbsOptimizedSupport") != "default":
        return None
    bandwidth: int | None = ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps")
    return bandwidth


def _accelerators(found: Any) -> tuple[Accelerator, ...]:
    return tuple(
        Accelerator(a["Name"], a["Manufacturer"], a["Count"], a.get("MemoryInfo", {}).get("SizeInMiB", 0))
        for a in found
    )


def _neuron_devices(neuron: Mapping[str, Any]) -> tuple[NeuronDevice, ...]:
    return tuple(
        NeuronDevice(d["Name"], d["Count"], d.get("CoreInfo", {}).get("Count", 0))
        for d in neuron.get("NeuronDevices", ())
    )
