"""Addresses that a NodeClass asks for and EC2 refuses, or that pods of its cluster's IP family cannot reach."""

from __future__ import annotations

from nodesmith.decisions.launch.obstacles import Obstacle
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo

REASON = "IPFamilyMismatch"
_PUBLIC = "spec.associatePublicIPAddress"
_FAMILIES = {4: "ipv4", 6: "ipv6"}
_WORDS = {"ipv4": "IPv4", "ipv6": "IPv6"}


def address_obstacle(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    """Return a public address that EC2 gives to no such instance, or the first DNS server that pods could not reach.

    Return None if there is neither. The kubelet would ignore text that is no address. A link-local address, such as
    that of a DNS cache on the node, is reached in either family.
    """
    interfaces = len(nodeclass.network_interfaces)
    if nodeclass.associate_public_ip_address and interfaces > 1:
        return Obstacle(
            "PublicIPAddressInvalid",
            f"{_PUBLIC} is true, but EC2 assigns no public address to an instance with {interfaces} network "
            "interfaces: leave it out, and reach the internet through a NAT gateway",
            _PUBLIC,
        )
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
