"""A cluster with IPv6 addresses, on the real control plane."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from nodesmith_local.runs.timeline import condition
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool

SMALL = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m4.large"]},
]
LABELLED = {"family": "wrong"}


def family_of(address: str) -> int:
    return ip_address(address).version


def addresses(node: Any) -> list[str]:
    return [each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"]


def nodeclass_condition(system: System, name: str, kind: str) -> Any:
    return condition(system.cluster.objects.get("ec2nodeclasses", name), kind)


def test_pods_of_an_ipv6_cluster_run_on_nodes_with_ipv6_and_a_nodeclass_of_the_other_family_is_reported(
    start: Start,
) -> None:
    system = start(ip_family="ipv6")
    dns = {"clusterDNS": ["10.100.0.10"]}
    selecting = [{"key": "family", "operator": "In", "values": ["wrong"]}]
    system.apply(
        nodeclass(CLUSTER),
        nodepool(requirements=SMALL),
        nodeclass(CLUSTER, "ipv4", kubelet=dns),
        nodepool("ipv4", requirements=[*SMALL, *selecting], nodeclass="ipv4"),
        deployment("web", 60, cpu="20m", memory="16Mi"),
        deployment("left", 1, nodeSelector=LABELLED),
    )
    system.until_running(60, "web")
    system.until_settled()

    (node,) = system.nodes()
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "m5.large"
    assert node["status"]["capacity"]["pods"] == "110", "by IPv4 addresses, it would have 29"
    assert [family_of(each) for each in addresses(node)] == [6]
    assert {family_of(pod["status"]["podIP"]) for pod in system.pods("web")} == {6}

    (instance,) = system.instances()
    (interface,) = instance["NetworkInterfaces"]
    assert [family_of(each["Ipv6Address"]) for each in interface["Ipv6Addresses"]] == [6]

    system.until("the other NodeClass is told", lambda: nodeclass_condition(system, "ipv4", "Ready") != {})
    reported = nodeclass_condition(system, "ipv4", "ValidationSucceeded")
    assert (reported["status"], reported["reason"]) == ("False", "IPFamilyMismatch")
    assert "spec.kubelet.clusterDNS[0] is '10.100.0.10', an IPv4 address" in reported["message"]
    assert [pod["status"]["phase"] for pod in system.pods("left")] == ["Pending"]
    assert {claim["metadata"]["labels"]["karpenter.sh/nodepool"] for claim in system.claims()} == {"default"}
