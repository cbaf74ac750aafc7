from __future__ import annotations

from dataclasses import replace

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.capacity import allocatable, capacity, overhead, pods
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.nodeclasses.instancesettings import (
    BlockDevice,
    BlockDeviceMapping,
    ConnectionTracking,
    KubeletConfiguration,
    NetworkInterface,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, NodeConfiguration
from nodesmith.model.policies import NodeSettings
from tests import builders

MIB, GIB = 2**20, 2**30
EBS = "attachable-volumes-csi-ebs.csi.aws.com"
DEFAULTS, AL2023 = NodeSettings(), NodeConfiguration()


def ec2(name: str) -> InstanceFacts:
    facts = embedded_catalog().facts[name]
    assert isinstance(facts, InstanceFacts)
    return facts


def left_for_pods(
    name: str, configuration: NodeConfiguration = AL2023, settings: NodeSettings = DEFAULTS
) -> Resources:
    room = capacity(ec2(name), configuration, settings)
    return allocatable(room, overhead(ec2(name), configuration, room))


def kube_reserved_mib(name: str, configuration: NodeConfiguration, settings: NodeSettings = DEFAULTS) -> int:
    room = capacity(ec2(name), configuration, settings)
    return overhead(ec2(name), configuration, room).memory_bytes // MIB - 100


@pytest.mark.parametrize(
    ("name", "pods", "cpu_milli", "memory_mib"),
    [
        ("t3.large", 35, 1930, 6837),
        ("m5.large", 29, 1930, 6903),
        ("m5.xlarge", 58, 3920, 14162),
        ("c6g.large", 29, 1930, 3055),
        ("inf2.48xlarge", 737, 191450, 718987),
        ("m6idn.32xlarge", 394, 127610, 480277),
        ("p5.48xlarge", 100, 191450, 1938410),
        ("i7ie.48xlarge", 394, 191450, 1450210),
        ("i8g.2xlarge", 58, 7910, 59568),
        ("m8ib.96xlarge", 758, 382970, 1446206),
        ("m8id.16xlarge", 1010, 63770, 231018),
    ],
)
def test_the_allocatable_of_a_type_matches_karpenters_table(
    name: str, pods: int, cpu_milli: int, memory_mib: int
) -> None:
    left = left_for_pods(name)
    assert (left.pods, left.cpu_milli, left.memory_bytes) == (pods, cpu_milli, memory_mib * MIB)
    assert left.of("ephemeral-storage") == 17 * GIB


def test_an_m5_xlarge_reserves_80_milli_cores_and_993_mib() -> None:
    kept = overhead(ec2("m5.xlarge"), AL2023, capacity(ec2("m5.xlarge"), AL2023, DEFAULTS))
    assert (kept.cpu_milli, kept.memory_bytes) == (80, 993 * MIB)


@pytest.mark.parametrize(
    ("name", "volumes"),
    [
        ("m5.large", 25),  # 27 shared with interfaces, minus a spare one and the root volume
        ("m5d.24xlarge", 21),  # four NVMe disks count against the 27
        ("g5.48xlarge", 7),
        ("d3.8xlarge", 1),
        ("m7i.large", 31),  # 32 for volumes alone
        ("m7i.48xlarge", 127),
        ("m4.large", 38),  # 39 on Xen
        ("m5.metal", 29),
    ],
)
def test_a_new_node_attaches_the_limit_of_its_type_less_its_own_volumes(name: str, volumes: int) -> None:
    assert capacity(ec2(name), AL2023, DEFAULTS).of(EBS) == volumes
    assert left_for_pods(name).of(EBS) == volumes


def test_every_volume_of_the_node_itself_uses_an_attachment() -> None:
    two = tuple(BlockDeviceMapping(name, BlockDevice()) for name in ("/dev/xvda", "/dev/xvdb"))
    launched = {
        "AL2023": EC2NodeClass("a"),
        "Bottlerocket": EC2NodeClass("a", ami_family="Bottlerocket"),
        "two": EC2NodeClass("a", block_device_mappings=two),
    }
    left = {
        name: capacity(ec2("m7i.large"), NodeConfiguration.of(nodeclass), DEFAULTS).of(EBS)
        for name, nodeclass in launched.items()
    }
    assert left == {"AL2023": 31, "Bottlerocket": 30, "two": 30}


def test_a_type_without_a_stated_limit_gets_the_usual_one() -> None:
    facts = replace(ec2("m7i.large"), ebs_attachments=None, ebs_attachments_shared=False)
    assert capacity(facts, AL2023, DEFAULTS).of(EBS) == 25


def test_devices_count_under_their_resource_names() -> None:
    p5, inf2 = (capacity(ec2(name), AL2023, DEFAULTS) for name in ("p5.48xlarge", "inf2.48xlarge"))
    assert {name: p5[name] for name in p5 if "/" in name} == {
        "nvidia.com/gpu": 8,
        "vpc.amazonaws.com/efa": 32,
        "vpc.amazonaws.com/pod-eni": 120,
    }
    assert (inf2["aws.amazon.com/neuron"], inf2["aws.amazon.com/neuroncore"]) == (12, 24)


@pytest.mark.parametrize(
    ("family", "pods", "kube_mib"),
    [
        ("AL2", 24, 640),
        ("AL2023", 24, 640),
        ("Custom", 24, 640),
        ("Bottlerocket", 24, 519),
        ("Windows2022", 110, 1465),
    ],
)
def test_a_reserved_interface_costs_pods_but_not_memory_except_on_bottlerocket(
    family: str, pods: int, kube_mib: int
) -> None:
    configuration, settings = NodeConfiguration(ami_family=family), NodeSettings(reserved_enis=1)
    assert capacity(ec2("t3.large"), configuration, settings).pods == pods
    assert kube_reserved_mib("t3.large", configuration, settings) == kube_mib


@pytest.mark.parametrize(
    ("family", "kube_mib"), [("AL2023", 640), ("AL2", 640), ("Bottlerocket", 365), ("Windows2022", 365)]
)
def test_max_pods_changes_the_reserved_memory_of_bottlerocket_and_windows_only(
    family: str, kube_mib: int
) -> None:
    configuration = NodeConfiguration(ami_family=family, kubelet=KubeletConfiguration(max_pods=10))
    assert left_for_pods("t3.large", configuration).pods == 10
    assert kube_reserved_mib("t3.large", configuration) == kube_mib


def test_reserving_more_interfaces_than_exist_leaves_no_pods() -> None:
    assert pods(ec2("t3.large"), AL2023, NodeSettings(reserved_enis=9)) == 0


def test_pods_per_core_caps_the_pods_but_not_on_bottlerocket() -> None:
    kubelet = KubeletConfiguration(pods_per_core=4, max_pods=100)
    assert pods(ec2("m5.xlarge"), NodeConfiguration(kubelet=kubelet), DEFAULTS) == 16
    assert pods(ec2("m5.xlarge"), NodeConfiguration("Bottlerocket", kubelet=kubelet), DEFAULTS) == 100


@pytest.mark.parametrize(
    ("name", "expected"), [("m5.large", 110), ("m5.24xlarge", 250), ("t3.nano", 34), ("m4.large", 20)]
)
def test_prefix_delegation_allows_more_pods_on_nitro_up_to_a_limit(name: str, expected: int) -> None:
    assert pods(ec2(name), AL2023, NodeSettings(prefix_delegation=True)) == expected


@pytest.mark.parametrize(("name", "expected"), [("m5.large", 9 * 16), ("m4.large", 9)])
def test_windows_nodes_on_nitro_have_a_prefix_for_each_address_of_their_interface(
    name: str, expected: int
) -> None:
    """The number of pods that the kubelet takes stays 110: each pod takes one of these addresses."""
    windows, settings = NodeConfiguration("Windows2022"), NodeSettings(windows_prefix_delegation=True)
    room = capacity(ec2(name), windows, settings)
    assert (room.pods, room["vpc.amazonaws.com/PrivateIPv4Address"]) == (110, expected)
    linux_only = capacity(ec2(name), windows, NodeSettings(prefix_delegation=True))
    assert linux_only["vpc.amazonaws.com/PrivateIPv4Address"] == 9


def test_an_efa_only_interface_on_the_first_card_carries_no_pods() -> None:
    interfaces = (NetworkInterface(0, 0, "interface"), NetworkInterface(0, 1, "efa-only"))
    room = capacity(ec2("p5.48xlarge"), NodeConfiguration(network_interfaces=interfaces), DEFAULTS)
    assert (room.pods, room["vpc.amazonaws.com/efa"]) == (51, 1)


def test_memory_overhead_is_rounded_up_to_whole_mebibytes() -> None:
    facts = ec2("m5.large")
    whole = capacity(facts, AL2023, NodeSettings(vm_memory_overhead_percent=0))
    assert whole.memory_bytes == 8192 * MIB
    assert capacity(facts, AL2023, DEFAULTS).memory_bytes == (8192 - 615) * MIB


def test_arm64_has_64_mib_less() -> None:
    settings = NodeSettings(vm_memory_overhead_percent=0)
    assert capacity(ec2("c6g.large"), AL2023, settings).memory_bytes == (4096 - 64) * MIB


def test_users_reservations_replace_kube_reserved_and_add_to_system_reserved() -> None:
    kubelet = KubeletConfiguration(
        kube_reserved=Resources({"cpu": 500}), system_reserved=Resources({"cpu": 200, "memory": 100 * MIB})
    )
    left = left_for_pods("m5.large", NodeConfiguration(kubelet=kubelet))
    assert left.cpu_milli == 2000 - 500 - 200
    assert left.memory_bytes == (6903 - 100) * MIB


@pytest.mark.parametrize(
    ("threshold", "kept_bytes"),
    [("200Mi", 200 * MIB), ("5%", 397253018), ("100%", 0), ("0%", 0), ("12.5%", 993132544)],
)
def test_hard_eviction_of_memory_is_a_quantity_or_a_percentage_of_capacity(
    threshold: str, kept_bytes: int
) -> None:
    kubelet = KubeletConfiguration(eviction_hard={"memory.available": threshold})
    assert left_for_pods("m5.large", NodeConfiguration(kubelet=kubelet)).memory_bytes == (
        7577 * MIB - 574 * MIB - kept_bytes
    )


def test_hard_eviction_of_storage_replaces_the_ten_percent() -> None:
    kubelet = KubeletConfiguration(eviction_hard={"nodefs.available": "25%"})
    left = left_for_pods("m5.large", NodeConfiguration(kubelet=kubelet))
    assert left.of("ephemeral-storage") == 20 * GIB - GIB - 5 * GIB


def test_soft_eviction_thresholds_are_ignored() -> None:
    kubelet = KubeletConfiguration(eviction_soft={"memory.available": "50%"})
    assert left_for_pods("m5.large", NodeConfiguration(kubelet=kubelet)) == left_for_pods("m5.large")


def test_raid0_makes_an_instance_store_the_pods_ephemeral_storage() -> None:
    raid = NodeConfiguration(instance_store_policy="RAID0")
    assert capacity(ec2("m5d.large"), raid, DEFAULTS).of("ephemeral-storage") == 75 * 10**9
    assert capacity(ec2("m5.large"), raid, DEFAULTS).of("ephemeral-storage") == 20 * GIB


def test_windows_nodes_have_private_addresses_as_a_resource() -> None:
    room = capacity(ec2("m5.large"), NodeConfiguration("Windows2022"), DEFAULTS)
    assert room["vpc.amazonaws.com/PrivateIPv4Address"] == 9


def test_a_node_whose_overhead_exceeds_its_capacity_takes_no_pods() -> None:
    kubelet = KubeletConfiguration(system_reserved=Resources({"memory": 100 * GIB}))
    left = left_for_pods("m5.large", NodeConfiguration(kubelet=kubelet))
    assert (left.memory_bytes, left.pods) == (0, 0)


def test_the_node_class_determines_its_part_of_the_capacity() -> None:
    volume = BlockDeviceMapping("/dev/xvda", BlockDevice(volume_size="100Gi"))
    nodeclass = EC2NodeClass(
        "default",
        block_device_mappings=(volume,),
        connection_tracking=ConnectionTracking(udp_timeout_seconds=30),
        kubelet=KubeletConfiguration(max_pods=20),
    )
    configuration = NodeConfiguration.of(nodeclass)
    assert configuration == NodeConfiguration(
        root_volume_bytes=100 * GIB, connection_tracking=True, kubelet=KubeletConfiguration(max_pods=20)
    )
    assert configuration != NodeConfiguration.of(replace(nodeclass, nested_virtualization="enabled"))
    assert left_for_pods("m5.large", configuration).of("ephemeral-storage") == 89 * GIB


@pytest.mark.parametrize("name", ["g6f.large", "g6f.4xlarge", "gr6f.4xlarge"])
def test_a_share_of_a_gpu_is_one_gpu_for_pods(name: str) -> None:
    (kind,) = (t for t in instance_types(builders.catalog(), NodeConfiguration()) if t.name == name)
    assert kind.allocatable.of("nvidia.com/gpu") == 1
    assert kind.labels["karpenter.k8s.aws/instance-gpu-count"] == "1"
    assert kind.labels["karpenter.k8s.aws/instance-gpu-name"] == "l4"
