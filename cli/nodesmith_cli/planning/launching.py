"""EC2NodeClasses that are readable but cannot launch nodes, as a cluster would report in their status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from yaml import ScalarNode

from nodesmith.decisions.launch.validation import Obstacle, launch_obstacle
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, parse_nodeclass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, StatusCondition
from nodesmith_cli.planning.nodeclasses import KUBERNETES
from nodesmith_formats.manifests.documents import node_at
from nodesmith_formats.manifests.manifests import Document, Fault

_SERVICES = {"ipv4": ("10.100.0.0/16", "10.100.0.10"), "ipv6": ("fd00::/108", "fd00::a")}


def assumed_cluster(name: str, ip_family: str) -> ClusterInfo:
    """Return a cluster of an IP family: nothing else about it affects a plan."""
    services, dns = _SERVICES[ip_family]
    return ClusterInfo(
        name, "https://cluster.invalid", "", services, KUBERNETES, ip_family=ip_family, dns_ip=dns
    )


def judged(
    status: NodeClassStatus, manifest: Mapping[str, Any], cluster: ClusterInfo | None = None
) -> NodeClassStatus:
    """Return the status, with a failed validation if the EC2NodeClass cannot launch nodes.

    If the cluster is not known, its IP family is that of the first DNS server that the EC2NodeClass names.
    """
    obstacle = _obstacle(parse_nodeclass(manifest).value, cluster)
    if obstacle is None:
        return status
    failed = StatusCondition("ValidationSucceeded", "False", obstacle.reason, obstacle.message)
    return replace(status, conditions=(failed,))


def unlaunchable(document: Document) -> Fault | None:
    """Return the reason why an EC2NodeClass cannot launch nodes, or None if it can or is unreadable."""
    obstacle = _obstacle(parse_nodeclass(document.manifest).value, None)
    if obstacle is None:
        return None
    message = obstacle.message.removeprefix(f"{obstacle.field}: ").removeprefix(f"{obstacle.field} ")
    fault = document.fault(f"cannot launch nodes: {message}", obstacle.field)
    node = node_at(document.node, obstacle.field) if document.was is None else None
    is_block = isinstance(node, ScalarNode) and node.style == "|"
    return replace(fault, line=fault.line + obstacle.line) if is_block else fault


def _obstacle(nodeclass: EC2NodeClass | None, cluster: ClusterInfo | None) -> Obstacle | None:
    if nodeclass is None:
        return None
    servers = nodeclass.kubelet.cluster_dns
    likely = "ipv6" if servers and ":" in servers[0] else "ipv4"
    return launch_obstacle(nodeclass, cluster or assumed_cluster("cluster", likely))
