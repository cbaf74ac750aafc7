from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.capacity import allocatable, capacity, overhead
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.nodeclasses.instancesettings import (
    DEFAULT_BLOCK_DEVICES,
    KubeletConfiguration,
    NetworkInterface,
)
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import NodeSettings

facts = st.builds(
    InstanceFacts,
    name=st.just("m9z.large"),
    arch=st.sampled_from(["amd64", "arm64"]),
    vcpus=st.integers(1, 1000),
    memory_mib=st.integers(128, 33_554_432),
    capacity_types=st.just(("on-demand",)),
    interfaces=st.integers(1, 120),
    ipv4_per_interface=st.integers(1, 100),
    hypervisor=st.sampled_from(["nitro", "xen", ""]),
    local_storage_gb=st.integers(0, 100_000),
)
reserved = st.builds(
    Resources, st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), st.integers(0, 2**40))
)
threshold = st.one_of(
    st.integers(0, 100).map("{}%".format),
    st.integers(0, 10**6).map("{}Mi".format),
)
kubelets = st.builds(
    KubeletConfiguration,
    max_pods=st.none() | st.integers(0, 1000),
    pods_per_core=st.none() | st.integers(0, 100),
    system_reserved=reserved,
    kube_reserved=reserved,
    eviction_hard=st.dictionaries(st.sampled_from(["memory.available", "nodefs.available"]), threshold),
)
interfaces = st.builds(
    NetworkInterface, st.integers(0, 3), st.integers(0, 3), st.sampled_from(["interface", "efa-only"])
)
configurations = st.builds(
    NodeConfiguration,
    ami_family=st.sampled_from(sorted(DEFAULT_BLOCK_DEVICES)),
    root_volume_bytes=st.integers(2**20, 2**46),
    instance_store_policy=st.sampled_from(["", "RAID0"]),
    kubelet=kubelets,
    network_interfaces=st.lists(interfaces, max_size=3).map(tuple),
)
settings = st.builds(
    NodeSettings,
    vm_memory_overhead_percent=st.floats(0, 0.99),
    reserved_enis=st.integers(0, 20),
    prefix_delegation=st.booleans(),
    ipv6=st.booleans(),
)


@given(facts, configurations, settings)
def test_allocatable_is_never_negative_or_above_capacity(
    facts: InstanceFacts, configuration: NodeConfiguration, settings: NodeSettings
) -> None:
    room = capacity(facts, configuration, settings)
    left = allocatable(room, overhead(facts, configuration, room, settings))
    assert all(0 <= left.of(name) <= room.of(name) for name in {*room, *left})


@given(facts, configurations, settings)
def test_capacity_and_overhead_add_up_where_pods_can_run(
    facts: InstanceFacts, configuration: NodeConfiguration, settings: NodeSettings
) -> None:
    room = capacity(facts, configuration, settings)
    kept = overhead(facts, configuration, room, settings)
    left = allocatable(room, kept)
    if left.pods:
        assert all(left.of(name) + kept.of(name) == room.of(name) for name in ("cpu", "memory", "pods"))


@given(facts, configurations, st.integers(0, 10))
def test_reserving_interfaces_never_increases_max_pods(
    facts: InstanceFacts, configuration: NodeConfiguration, reserved_enis: int
) -> None:
    without = capacity(facts, configuration, NodeSettings())
    assert capacity(facts, configuration, NodeSettings(reserved_enis=reserved_enis)).pods <= without.pods
