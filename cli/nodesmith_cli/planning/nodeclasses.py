"""EC2NodeClasses as a cluster would report them: their status, shown or assumed, and why some cannot launch nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from yaml import ScalarNode

from nodesmith.adapters.nodeclasses.imagealiases import ImageParameter, alias_parameters
from nodesmith.decisions.launch.validation import Obstacle, launch_obstacle
from nodesmith.decisions.shadow.fleet import AVAILABLE, assumed_nodeclass
from nodesmith.decisions.shadow.fleet import statuses as shown_statuses
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, parse_nodeclass
from nodesmith.model.nodeclasses.status import (
    ClusterInfo,
    Image,
    NodeClassStatus,
    StatusCondition,
    Unresolved,
)
from nodesmith_formats.manifests.documents import node_at
from nodesmith_formats.manifests.manifests import Document, Fault

__all__ = [
    "AVAILABLE",
    "KUBERNETES",
    "assumed_cluster",
    "assumed_nodeclass",
    "assumed_zones",
    "judged",
    "statuses",
    "unlaunchable",
]

Manifest = Mapping[str, Any]
_ZONES = 3
KUBERNETES = "1.34"
"""The assumed Kubernetes version, which determines the images of an alias."""
_OTHER_VERSIONS = ("1.32", "1.35")
"""The last version with AL2, and the first with Windows Server 2025."""
_SERVICES = {"ipv4": ("10.100.0.0/16", "10.100.0.10"), "ipv6": ("fd00::/108", "fd00::a")}


def assumed_zones(catalog: Catalog) -> tuple[str, ...]:
    """Return the zones that are assumed to have subnets: the region's first three, a to c.

    Local zones such as us-west-2-lax-1a, which have longer names, come last.
    """
    sold = {offering.zone for offerings in catalog.offerings.values() for offering in offerings}
    return tuple(sorted(sold, key=lambda zone: (len(zone), zone))[:_ZONES])


def statuses(manifests: Iterable[Manifest], zones: Sequence[str]) -> dict[str, NodeClassStatus]:
    """Return the resolved status of each readable EC2NodeClass, by name."""
    return shown_statuses(manifests, zones, _assumed_images)


def _assumed_images(nodeclass: EC2NodeClass) -> Iterator[Image]:
    """Yield the images of aliases. Images selected in another way are assumed to boot on every instance type."""
    for term in nodeclass.ami_selector_terms:
        parameters = _parameters(term.alias) if term.alias else ()
        served = [needs for parameter in parameters for needs in parameter.serves] or [NO_REQUIREMENTS]
        yield from (Image("ami-assumed", requirements=needs) for needs in served)


def _parameters(alias: str) -> tuple[ImageParameter, ...]:
    """Return the parameters of an alias, for the assumed Kubernetes version or another one that has such images."""
    for kubernetes in (KUBERNETES, *_OTHER_VERSIONS):
        with suppress(Unresolved):
            return alias_parameters(alias, kubernetes)
    return ()


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
    node = node_at(document.node, obstacle.field) if document.original is None else None
    is_block = isinstance(node, ScalarNode) and node.style == "|"
    return replace(fault, line=fault.line + obstacle.line) if is_block else fault


def _obstacle(nodeclass: EC2NodeClass | None, cluster: ClusterInfo | None) -> Obstacle | None:
    if nodeclass is None:
        return None
    servers = nodeclass.kubelet.cluster_dns
    likely = "ipv6" if servers and ":" in servers[0] else "ipv4"
    return launch_obstacle(nodeclass, cluster or assumed_cluster("cluster", likely))
