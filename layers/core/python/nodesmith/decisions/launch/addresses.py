"""Addresses of a NodeClass that do not belong to its cluster's IP family."""

from __future__ import annotations

from nodesmith.decisions.launch.obstacles import Obstacle
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo

REASON = "IPFamilyMismatch"
_FAMILIES = {4: "ipv4", 6: "ipv6"}
_WORDS = {"ipv4": "IPv4", "ipv6": "IPv6"}


def address_obstacle(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    """Return the first DNS server that pods could not reach, None if there is none.

    The kubelet would ignore text that is no address. A link-local address, such as that of a DNS cache on the node, is
    reached in either family.
    """
    for number, text in enumerate(nodeclass.kubelet.cluster_dns):
        field = f"spec.kubelet.clusterDNS[{number}]"
        wrong = _fault(text, cluster)
        if wrong:
            return Obstacle(REASON, f"{field} is {text!r}, {wrong}", field)
    return None


def _fault(text: str, cluster: ClusterInfo) -> str:
    from ipaddress import ip_address  # only few NodeClasses name DNS servers

    right = f"leave it out, or write {cluster.dns_ip}" if cluster.dns_ip else "leave it out"
    try:
        address = ip_address(text)
    except ValueError:
        return f"which is not an IP address: {right}"
    family = _FAMILIES[address.version]
    if family == cluster.ip_family or address.is_link_local:
        return ""
    return f"an {_WORDS[family]} address, but the cluster is {_WORDS[cluster.ip_family]}: {right}"
