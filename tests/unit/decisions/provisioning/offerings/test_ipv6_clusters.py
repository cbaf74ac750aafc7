"""Clusters with IPv6 addresses: what nodes offer there, and NodeClasses of the other family."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.launch import Templates, launch_obstacle, launch_plan, usable
from nodesmith.decisions.provisioning import decide
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.instancesettings import KubeletConfiguration
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import ClusterInfo, Subnet
from nodesmith.model.policies import NodeSettings
from tests import builders
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, NOW, options, status

IPV6 = replace(CLUSTER, ip_family="ipv6", service_cidr="fd12::/108", dns_ip="fd12::a")
SETTINGS = NodeSettings().in_cluster(IPV6)
MIB = 2**20


def kind(name: str, family: str = "AL2023", **settings: Any) -> InstanceType:
    given = replace(SETTINGS, **settings)
    types = instance_types(embedded_catalog(), NodeConfiguration(family), given)
    return next(each for each in types if each.name == name)


def test_settings_follow_the_cluster_and_stay_the_same_in_any_other() -> None:
    assert NodeSettings(ipv6=True) == SETTINGS
    assert NodeSettings().in_cluster(CLUSTER) == NodeSettings().in_cluster(None) == NodeSettings()


@pytest.mark.parametrize("name", ["t3.nano", "t3.large", "m5.24xlarge", "m5.metal"])
@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Custom"])
def test_addresses_limit_no_pods(name: str, family: str) -> None:
    assert kind(name, family).capacity.pods == 110


def test_max_pods_and_pods_per_core_still_apply() -> None:
    types = {
        limit: instance_types(embedded_catalog(), NodeConfiguration(kubelet=kubelet), SETTINGS)
        for limit, kubelet in (
            (30, KubeletConfiguration(max_pods=30)),
            (16, KubeletConfiguration(pods_per_core=4)),
        )
    }
    for limit, resolved in types.items():
        assert next(t for t in resolved if t.name == "m5.xlarge").capacity.pods == limit


def test_a_node_without_an_interface_for_pods_takes_none() -> None:
    assert kind("t3.large", reserved_enis=3).capacity.pods == 0


@pytest.mark.parametrize(
    ("name", "family", "kube_mib"),
    [
        ("t3.large", "AL2023", 1465),
        ("inf2.48xlarge", "AL2023", 11 * 737 + 255),
        ("t3.large", "AL2", 640),
        ("t3.large", "Bottlerocket", 1465),
    ],
)
def test_memory_is_reserved_for_as_many_pods_as_the_image_counts(
    name: str, family: str, kube_mib: int
) -> None:
    assert kind(name, family).overhead.memory_bytes == (kube_mib + 100) * MIB


def test_types_without_nitro_are_not_offered() -> None:
    assert kind("m4.large").offerings == ()
    assert kind("m5.large").offerings


def test_pods_of_an_ipv6_cluster_are_planned_onto_nodes_with_ipv6() -> None:
    ledger = builders.ledger(cluster=replace(builders.cluster_info(), ip_family="ipv6"))
    settings = NodeSettings(fragility_tolerance=0).in_cluster(ledger.cluster)
    pods = builders.pods(builders.shape("10m", "16Mi"), 100)
    plan = decide(builders.inputs(pods=pods, ledger=ledger, settings=settings))
    (node,) = plan.nodes
    assert len(node.claim.nominated) == 100
    interface = node.templates[0].data["NetworkInterfaces"][0]
    assert (interface["PrimaryIpv6"], interface["Ipv6AddressCount"]) == (True, 1)


def test_a_node_takes_one_address_of_its_subnet() -> None:
    subnets = (Subnet("subnet-1", "us-east-1a", free_ips=30), Subnet("subnet-2", "us-east-1a", free_ips=20))
    resolved, known, found = status(subnets=subnets), Templates(), Counter[str]()
    for number in range(20):
        claim = replace(CLAIM, name=f"default-{number}")
        offered = options(["m5.large"], zones=["us-east-1a"])
        request, _ = launch_plan(claim, offered, NODECLASS, resolved, IPV6, known)
        found[request.overrides[0].subnet_id] += 1
    assert found == {"subnet-1": 15, "subnet-2": 5}

    launched = replace(CLAIM, phase=Phase.LAUNCHED, launched_at=NOW.replace(hour=9), subnet_id="subnet-1")
    left = usable(resolved, Ledger(claims=(launched,), cluster=IPV6), NOW).subnets
    assert {s.id: s.free_ips for s in left} == {"subnet-1": 29, "subnet-2": 20}


@pytest.mark.parametrize(
    ("cluster", "address", "message"),
    [
        (CLUSTER, "10.100.0.10", ""),
        (CLUSTER, "169.254.20.10", ""),
        (IPV6, "fd12::a", ""),
        (IPV6, "169.254.20.10", ""),
        (
            CLUSTER,
            "fd12::a",
            "is 'fd12::a', an IPv6 address, but the cluster is IPv4: leave it out, or write 10.100.0.10",
        ),
        (
            IPV6,
            "10.100.0.10",
            "is '10.100.0.10', an IPv4 address, but the cluster is IPv6: leave it out, or write fd12::a",
        ),
        (
            CLUSTER,
            "kube-dns",
            "is 'kube-dns', which is not an IP address: leave it out, or write 10.100.0.10",
        ),
    ],
)
def test_a_dns_server_that_pods_cannot_reach_is_named(
    cluster: ClusterInfo, address: str, message: str
) -> None:
    kubelet = KubeletConfiguration(cluster_dns=(address,))
    obstacle = launch_obstacle(replace(NODECLASS, kubelet=kubelet), cluster)
    found = f"{obstacle.reason}: {obstacle.message}" if obstacle else ""
    assert found == (f"IPFamilyMismatch: spec.kubelet.clusterDNS[0] {message}" if message else "")
