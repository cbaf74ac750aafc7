"""The resources of an instance type: capacity, overhead (what the node reserves), and allocatable (what is left).

The formulas are EC2's and the kubelet's as Karpenter v1 applies them, exact to the byte.

The number of volumes that a node can attach is a resource too: pods request their volumes, and nodes offer attachments.
For Amazon EBS, the limit of each instance type is known. AWS's other drivers (EFS, FSx, S3) state no limit, so
kube-scheduler applies none. For any other driver with a limit, only existing nodes say it: `AttachLimits` has what they
report. Sources: EC2's EbsInfo.MaximumEbsAttachments, which includes the root volume and, if the limit is shared,
excludes the NVMe disks and the first network interface; and the defaults of the EBS CSI driver, which reserves an
attachment for each of the node's own volumes, and has a limit of 39 on Xen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Resources,
    total,
    whole_units,
)
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.nodeclasses.instancesettings import AL2023, BOTTLEROCKET, GIB, KubeletConfiguration
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings

MIB = 2**20
_ARM64_FIRMWARE_MIB = 64
_DEFAULT_PODS = 110
_DEFAULT_SETTINGS = NodeSettings()
_PREFIX_ADDRESSES = 16
_MANY_VCPUS = 30
_PODS_CEILING, _PODS_CEILING_MANY_VCPUS = 110, 250
_CPU_BANDS = ((0, 1000, 0.06), (1000, 2000, 0.01), (2000, 4000, 0.005), (4000, 2**31, 0.0025))
_GPU_RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
NEURON, NEURON_CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
ACCELERATOR_RESOURCES = frozenset({*_GPU_RESOURCES.values(), NEURON, NEURON_CORE})
"""The resources of GPUs and other accelerators, as their device plugins name them."""
EFA, POD_ENI = "vpc.amazonaws.com/efa", "vpc.amazonaws.com/pod-eni"
_NO_EFA_ON_FIRST_CARD = ("p6-b300.",)
"""Types whose first network card carries IP only; each of the others is for one EFA interface without IP."""
PRIVATE_IPV4 = "vpc.amazonaws.com/PrivateIPv4Address"


def capacity(facts: InstanceFacts, configuration: NodeConfiguration, settings: NodeSettings) -> Resources:
    """Return what the kubelet will report as `status.capacity`, plus the EBS attachments that the CSINode will report.

    Memory is an estimate until a node has reported it.
    """
    amounts = {
        CPU: facts.vcpus * 1000,
        MEMORY: _memory_bytes(facts, settings),
        EPHEMERAL_STORAGE: _ephemeral_storage_bytes(facts, configuration),
        PODS: pods(facts, configuration, settings),
        POD_ENI: facts.branch_interfaces,
        EFA: _efa_interfaces(facts, configuration),
        ATTACHABLE_EBS: attachable_volumes(facts, configuration),
        NEURON: sum(device.count for device in facts.neuron_devices),
        NEURON_CORE: sum(device.count * device.cores_per_device for device in facts.neuron_devices),
    }
    for gpu in facts.gpus:
        resource = _GPU_RESOURCES.get(gpu.manufacturer)
        if resource:
            amounts[resource] = amounts.get(resource, 0) + gpu.units
    if configuration.windows:
        amounts[PRIVATE_IPV4] = _windows_addresses(facts, settings)
    return Resources({name: amount for name, amount in amounts.items() if amount})


def pods(facts: InstanceFacts, configuration: NodeConfiguration, settings: NodeSettings) -> int:
    """Return the maximum number of pods: maxPods, else what the network interfaces support, capped by podsPerCore.

    In an IPv6 cluster, addresses are no limit: an interface gets a /80 prefix. The default there is the kubelet's own,
    as in nodeadm.
    """
    kubelet = configuration.kubelet
    if kubelet.max_pods is not None:
        limit = kubelet.max_pods
    elif configuration.windows:
        limit = _DEFAULT_PODS
    else:
        limit = _interface_pods(facts, configuration, settings)
    if kubelet.pods_per_core and configuration.ami_family != BOTTLEROCKET:
        limit = min(limit, kubelet.pods_per_core * facts.vcpus)
    return limit


def overhead(
    facts: InstanceFacts,
    configuration: NodeConfiguration,
    capacity: Resources,
    settings: NodeSettings = _DEFAULT_SETTINGS,
) -> Resources:
    """Return what the node reserves: kube-reserved, system-reserved and hard eviction thresholds.

    In an IPv6 cluster, AL2023's nodeadm reserves memory for 110 pods; its releases before June 2026 reserved it by the
    network interfaces. The greater of the two is assumed.
    """
    kubelet = configuration.kubelet
    if configuration.ami_family == BOTTLEROCKET or configuration.windows:
        counted_pods = capacity.pods
    else:
        counted_pods = _address_pods(facts, _usable_interfaces(facts, configuration, 0))
        if settings.ipv6 and configuration.ami_family == AL2023:
            counted_pods = max(counted_pods, _DEFAULT_PODS)
    reserved = {
        CPU: _kube_reserved_cpu_milli(capacity.cpu_milli),
        MEMORY: (11 * counted_pods + 255) * MIB,
        EPHEMERAL_STORAGE: GIB,
    }
    return total(
        (
            Resources({**reserved, **kubelet.kube_reserved}),
            kubelet.system_reserved,
            eviction_threshold(capacity, kubelet),
        )
    )


def eviction_threshold(capacity: Resources, kubelet: KubeletConfiguration) -> Resources:
    """Return the memory and storage below which the kubelet evicts immediately. Soft thresholds do not count."""
    memory = kubelet.eviction_hard.get("memory.available", "100Mi")
    storage = kubelet.eviction_hard.get("nodefs.available", "10%")
    return Resources(
        {
            MEMORY: _signal_bytes(memory, capacity.memory_bytes if memory.endswith("%") else 0),
            EPHEMERAL_STORAGE: _signal_bytes(storage, capacity.of(EPHEMERAL_STORAGE)),
        }
    )


def allocatable(capacity: Resources, overhead: Resources) -> Resources:
    """Return the resources that are left for pods, never negative.

    If the overhead exceeds the capacity of any resource, the node takes no pods at all, whatever they request.
    """
    remaining = {name: amount - overhead.of(name) for name, amount in capacity.items()}
    if min(remaining.values(), default=0) >= 0:
        return Resources(remaining)
    return Resources({**{name: max(0, amount) for name, amount in remaining.items()}, PODS: 0})


def without_efa(resources: Resources) -> Resources:
    """Return the resources of a node that is launched without Elastic Fabric Adapters, although its type has them."""
    if not resources.of(EFA):
        return resources
    return Resources({name: amount for name, amount in resources.items() if name != EFA})


@lru_cache(maxsize=256)
def _kube_reserved_cpu_milli(cpu_milli: int) -> int:
    """Return the sum of a share of each CPU band, each truncated to whole milli-cores."""
    bands = ((start, min(cpu_milli, end), share) for start, end, share in _CPU_BANDS if cpu_milli >= start)
    return sum(int((end - start) * share) for start, end, share in bands)


def _memory_bytes(facts: InstanceFacts, settings: NodeSettings) -> int:
    mib = facts.memory_mib - (_ARM64_FIRMWARE_MIB if facts.arch == "arm64" else 0)
    return (mib - math.ceil(mib * MIB * settings.vm_memory_overhead_percent / 1024 / 1024)) * MIB


def _ephemeral_storage_bytes(facts: InstanceFacts, configuration: NodeConfiguration) -> int:
    if configuration.instance_store_policy == "RAID0" and facts.local_storage_gb:
        return facts.local_storage_gb * 10**9
    return configuration.root_volume_bytes


def first_efa_card(instance_type: str) -> int:
    """Return the first network card of a type that takes an EFA interface. Source: the EC2 user guide on EFA."""
    return 1 if instance_type.startswith(_NO_EFA_ON_FIRST_CARD) else 0


def _efa_interfaces(facts: InstanceFacts, configuration: NodeConfiguration) -> int:
    interfaces = configuration.network_interfaces
    if interfaces:
        return sum(i.interface_type == "efa-only" for i in interfaces)
    if configuration.one_interface:
        return min(facts.efa_interfaces, 0 if first_efa_card(facts.name) else 1)
    return facts.efa_interfaces


def _usable_interfaces(facts: InstanceFacts, configuration: NodeConfiguration, reserved: int) -> int:
    efa_only = sum(
        i.interface_type == "efa-only" and i.network_card_index == 0 for i in configuration.network_interfaces
    )
    return max(facts.interfaces - reserved - efa_only, 0)


def _windows_addresses(facts: InstanceFacts, settings: NodeSettings) -> int:
    """Return the addresses for pods of a Windows node, which uses one network interface.

    Source: the VPC resource controller, which advertises them and gives one to each pod.
    """
    prefixes = settings.windows_prefix_delegation and facts.hypervisor != "xen"
    return (facts.ipv4_per_interface - 1) * (_PREFIX_ADDRESSES if prefixes else 1)


def _interface_pods(facts: InstanceFacts, configuration: NodeConfiguration, settings: NodeSettings) -> int:
    usable = _usable_interfaces(facts, configuration, settings.reserved_enis)
    if settings.ipv6:
        return _DEFAULT_PODS if usable else 0
    if not settings.prefix_delegation or facts.hypervisor == "xen":
        return _address_pods(facts, usable)
    ceiling = _PODS_CEILING_MANY_VCPUS if facts.vcpus > _MANY_VCPUS else _PODS_CEILING
    return min(_address_pods(facts, usable, addresses_per_slot=_PREFIX_ADDRESSES), ceiling)


def _address_pods(facts: InstanceFacts, interfaces: int, *, addresses_per_slot: int = 1) -> int:
    """Return the number of pods by IP addresses: an interface keeps one for itself; 2 pods use the host network."""
    return interfaces * (facts.ipv4_per_interface - 1) * addresses_per_slot + 2 if interfaces else 0


@lru_cache(maxsize=8192)
def _signal_bytes(signal: str, capacity_bytes: int) -> int:
    """Return a threshold in bytes. It is a quantity or a percentage of the capacity; 100 % disables the signal."""
    if not signal.endswith("%"):
        return whole_units(signal)
    percent = float(signal.rstrip("%"))
    return 0 if percent == 100 else math.ceil(capacity_bytes / 100 * percent)


EBS_DRIVER = "ebs.csi.aws.com"
ATTACHABLE = "attachable-volumes-csi-"
"""The prefix of a driver's resource, followed by the driver's name."""
ATTACHABLE_EBS = ATTACHABLE + EBS_DRIVER
UNLIMITED = 2**31 - 1
"""The amount that a node offers if no limit is stated."""
_XEN_LIMIT = 39
_USUAL_LIMIT = 27
"""The limit of a type for which EC2 states none: the shared limit of most Nitro types."""


def attachable_volumes(facts: InstanceFacts, configuration: NodeConfiguration) -> int:
    """Return the number of EBS volumes of pods that a new node can attach, at least 1, as the driver reports it.

    If the limit is shared, the VPC CNI's spare network interface (WARM_ENI_TARGET 1) uses one attachment by the time
    the driver counts.
    """
    if facts.hypervisor == "xen":
        places = _XEN_LIMIT
    elif facts.ebs_attachments is None or facts.ebs_attachments_shared:
        places = (facts.ebs_attachments or _USUAL_LIMIT) - (facts.interfaces > 1)
    else:
        places = facts.ebs_attachments
    return max(1, places - configuration.volumes)


def without_attachable(resources: Resources) -> Resources:
    """Return the resources without attachable volumes, which are in a node's CSINode and not in the Node."""
    return Resources({name: amount for name, amount in resources.items() if not name.startswith(ATTACHABLE)})


_AT_LEAST = 1
"""The least for an unseen type: with 0, no node of that type would be bought, and its limit would never be learned."""


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """`stated` is driver → instance type → the lowest limit that a node of that type reports.

    The instance type is empty for nodes without one.
    """

    stated: FrozenMap[FrozenMap[int]]

    def on(self, instance_type: str) -> Resources:
        """Return the attachments of a new node. For a type without nodes, they are the lowest limit of any node."""
        return Resources(
            {
                ATTACHABLE + driver: limits.get(instance_type, max(_AT_LEAST, min(limits.values())))
                for driver, limits in self.stated.items()
            }
        )


NO_LIMITS = AttachLimits(FrozenMap())
