"""The network of a group: subnets, security groups and interfaces as fields of an EC2NodeClass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodesmith_cli.migration.nodegroups.fields import Account
from nodesmith_cli.migration.nodegroups.groups import NODEGROUP, SCALING_GROUP, TEMPLATE, GroupContext

_INTERFACES = (TEMPLATE, "NetworkInterfaces")
_TIMEOUTS = {
    "TcpEstablishedTimeout": "tcpEstablishedTimeout",
    "UdpStreamTimeout": "udpStreamTimeout",
    "UdpTimeout": "udpTimeout",
}


def subnets_of(context: GroupContext, account: Account) -> list[str]:
    """Return the subnets of a group, those in the zone that its launch template names if it names one."""
    zone = account.get(TEMPLATE, "Placement", "AvailabilityZone")
    named = account.get(NODEGROUP, "subnets") or [
        text.strip() for text in str(account.get(SCALING_GROUP, "VPCZoneIdentifier") or "").split(",")
    ]
    ids = sorted({str(text) for text in named if text})
    for path in ((NODEGROUP, "subnets"), (SCALING_GROUP, "VPCZoneIdentifier")):
        account.record_kept(path, "EC2NodeClass spec.subnetSelectorTerms")
    interfaces = account.get(*_INTERFACES) or []
    ids = ids or sorted({str(interface["SubnetId"]) for interface in interfaces if interface.get("SubnetId")})
    if not ids:
        zones = account.get(SCALING_GROUP, "AvailabilityZones") or []
        ids = [
            context.default_subnets[zone_name] for zone_name in zones if zone_name in context.default_subnets
        ]
        account.record_kept((SCALING_GROUP, "AvailabilityZones"), "EC2NodeClass spec.subnetSelectorTerms")
    for path in ((SCALING_GROUP, "AvailabilityZones"), (SCALING_GROUP, "AvailabilityZoneIds")):
        account.record_kept(path, "the zones of the subnets")
    account.record_kept((TEMPLATE, "Placement", "AvailabilityZone"), "EC2NodeClass spec.subnetSelectorTerms")
    account.record_kept((TEMPLATE, "Placement", "AvailabilityZoneId"), "the zones of the subnets")
    return [subnet_id for subnet_id in ids if not zone or context.zones.get(subnet_id, zone) == zone]


def security_groups_of(context: GroupContext, account: Account) -> Iterator[dict[str, Any]]:
    """Yield selectors of the security groups of a group, the cluster's own if it names none."""
    became = "EC2NodeClass spec.securityGroupSelectorTerms"
    interfaces = account.get(*_INTERFACES) or []
    first: Mapping[str, Any] = next((interface for interface in interfaces if interface.get("Groups")), {})
    ids = account.get(TEMPLATE, "SecurityGroupIds") or first.get("Groups") or []
    names = account.get(TEMPLATE, "SecurityGroups") or []
    account.record_kept((TEMPLATE, "SecurityGroupIds"), became)
    account.record_kept((TEMPLATE, "SecurityGroups"), became)
    yield from ({"id": str(item)} for item in sorted(set(ids)))
    yield from ({"name": str(name)} for name in sorted(set(names)))
    if not ids and not names:  # EKS's own choice for a group that names none
        yield {"id": context.security_group} if context.security_group else _cluster_group(context.cluster)


def _cluster_group(cluster: str) -> dict[str, Any]:
    """Return a selector of the security group that EKS creates for a cluster."""
    return {"tags": {"aws:eks:cluster-name": cluster}}


def interfaces_of(account: Account) -> dict[str, Any]:
    """Return the settings of network interfaces. The first one's also apply to the group's launches so far."""
    interfaces: list[Mapping[str, Any]] = account.get(*_INTERFACES) or []
    if not interfaces:
        return {}
    first = interfaces[0]
    made: dict[str, Any] = {}
    if first.get("AssociatePublicIpAddress") is not None:
        made["associatePublicIPAddress"] = first["AssociatePublicIpAddress"]
    if first.get("Ipv4PrefixCount"):
        made["ipPrefixCount"] = first["Ipv4PrefixCount"]
    tracking = first.get("ConnectionTrackingSpecification") or {}
    if tracking:
        made["connectionTracking"] = {
            _TIMEOUTS[name]: value for name, value in tracking.items() if name in _TIMEOUTS
        }
    notes = [*_network_notes(interfaces)]
    if len(interfaces) > 1 and not any(interface.get("InterfaceType") == "efa" for interface in interfaces):
        made["networkInterfaces"] = [
            {
                "networkCardIndex": interface.get("NetworkCardIndex") or 0,
                "deviceIndex": interface.get("DeviceIndex") or 0,
                "interfaceType": interface.get("InterfaceType") or "interface",
            }
            for interface in interfaces
        ]
    became = ", ".join(f"spec.{name}" for name in made) or "the instance type's default"
    if notes:
        account.changed(_INTERFACES, became, "; ".join(notes))
    else:
        account.record_kept(_INTERFACES, became)
    return made


_CARRIED_OF_INTERFACES = frozenset(
    "AssociatePublicIpAddress Ipv4PrefixCount ConnectionTrackingSpecification Groups DeviceIndex InterfaceType "
    "NetworkCardIndex SubnetId DeleteOnTermination Description".split()
)


def _network_notes(interfaces: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    listed = list(interfaces)
    if any(interface.get("InterfaceType") == "efa" for interface in listed):
        yield "EFA interfaces are added for pods that request vpc.amazonaws.com/efa"
    if len({tuple(sorted(interface.get("Groups") or ())) for interface in listed}) > 1:
        yield "all interfaces get the security groups of the first"
    others = sorted(
        {name for interface in listed for name, value in interface.items() if value} - _CARRIED_OF_INTERFACES
    )
    if others:
        yield f"{', '.join(others)}: no equal"
