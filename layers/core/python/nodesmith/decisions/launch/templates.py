"""Launch templates, named by a digest of their content so that equal content is one template.

They contain the instance's user data, which the image family decides.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, NamedTuple

from nodesmith.decisions.launch.userdata.bootstrapscripts import al2_user_data, windows_user_data
from nodesmith.decisions.launch.userdata.configurations import al2023_user_data, bottlerocket_user_data
from nodesmith.decisions.launch.userdata.starting import Start
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import PARTITION, SPOT
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.instancetypes import DEDICATED_TENANCY, needs_dedicated
from nodesmith.model.ec2.launches import LaunchTemplate
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.ownership import shared_tags, tag_list
from nodesmith.model.nodeclasses.instancesettings import (
    AL2,
    AL2023,
    BOTTLEROCKET,
    CUSTOM,
    GIB,
    BlockDeviceMapping,
    ConnectionTracking,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus

_MARKETS = {"capacity-block": "capacity-block", "interruptible": "interruptible-capacity-reservation"}
"""The MarketType by kind of reservation; ordinary reservations use on-demand capacity."""
_WITHOUT_IPV6_METADATA = tuple(f"us-{region}" for region in ("iso-", "isob-", "isof-"))
"""The prefixes of regions whose EC2 does not know the option HttpProtocolIpv6."""
_WAVELENGTH = "-wlz-"
"""Part of the names of wavelength zones, such as us-east-1-wl1-bos-wlz-1."""


class Build(NamedTuple):
    """The properties for which instance types need different templates.

    `efa_interfaces` is 0 unless the claim requests EFA; `first_efa_card` is the card of the first one.
    `reservation` is the id of the capacity reservation to run in; if it is empty, the instance uses none at all.
    """

    image_id: str
    max_pods: int
    efa_interfaces: int = 0
    reservation: str = ""
    first_efa_card: int = 0


def launch_template(
    claim: NodeClaim,
    capacity_type: str,
    build: Build,
    nodeclass: EC2NodeClass,
    status: NodeClassStatus,
    cluster: ClusterInfo,
) -> LaunchTemplate:
    """Return the launch template of one build. Raises MalformedUserData, and Rejected if EC2 would refuse the size."""
    image = next((image.name for image in status.images if image.id == build.image_id), "")
    text = user_data(Start(claim, capacity_type, build.max_pods, nodeclass, cluster, image))
    size = len(text.encode())
    if size > USER_DATA_LIMIT_BYTES:  # validation knows no labels and taints, which come with the NodePool
        raise Rejected(
            f"NodeClaim {claim.name}: with its labels and taints, the user data of EC2NodeClass {nodeclass.name} has "
            f"{size} bytes, but EC2 accepts {USER_DATA_LIMIT_BYTES}: shorten spec.userData, or use fewer labels"
        )
    tags = shared_tags(claim, nodeclass, cluster.name)
    data = _data(nodeclass, status, cluster, build)
    if text:
        data["UserData"] = base64.b64encode(text.encode()).decode()
    placement = _placement(claim, status)
    if placement:
        data["Placement"] = placement
    # CreateFleet tags fleet, instance and volumes. EC2 reads the tags of spot requests from the template only.
    tagged = ["network-interface", *(["spot-instances-request"] if capacity_type == SPOT else [])]
    data["TagSpecifications"] = [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in tagged]
    return LaunchTemplate(f"nodesmith/{cluster.name}/{_digest(data, tags)}", data, tags)


def template_identity(claim: NodeClaim) -> tuple[object, ...]:
    """Return the parts of a claim that its templates depend on: claims with equal identities share templates."""
    labels = tuple(sorted(claim.labels.items()))
    own = claim.taints, claim.startup_taints, claim.images
    return claim.nodepool, labels, *own, needs_dedicated_tenancy(claim)


def needs_dedicated_tenancy(claim: NodeClaim) -> bool:
    """Return whether the claim rules out shared hardware."""
    return needs_dedicated(claim.requirements)


def tenancy(requirements: Requirements) -> str:
    """Return the tenancy to launch with: `default`, which means shared hardware, unless only `dedicated` is allowed."""
    return DEDICATED_TENANCY if needs_dedicated(requirements) else "default"


def _placement(claim: NodeClaim, status: NodeClassStatus) -> dict[str, Any]:
    settings: dict[str, Any] = {"Tenancy": DEDICATED_TENANCY} if needs_dedicated_tenancy(claim) else {}
    if status.placement_group is not None:
        settings["GroupId"] = status.placement_group.id
        if PARTITION in claim.labels:
            settings["PartitionNumber"] = int(claim.labels[PARTITION])
    return settings


def _data(
    nodeclass: EC2NodeClass, status: NodeClassStatus, cluster: ClusterInfo, build: Build
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "ImageId": build.image_id,
        "IamInstanceProfile": {"Name": status.instance_profile},
        "Monitoring": {"Enabled": bool(nodeclass.detailed_monitoring)},
        "MetadataOptions": _metadata(nodeclass, status),
        "NetworkInterfaces": _interfaces(nodeclass, status, cluster, build),
        "CapacityReservationSpecification": _reserved(build.reservation),
    }
    market = _MARKETS.get(reservation_kind(build.reservation, status))
    if market:
        data["InstanceMarketOptions"] = {"MarketType": market}
    if nodeclass.block_devices:
        data["BlockDeviceMappings"] = [_block_device(mapping) for mapping in nodeclass.block_devices]
    if nodeclass.nested_virtualization:
        data["CpuOptions"] = {"NestedVirtualization": nodeclass.nested_virtualization}
    return data


def _metadata(nodeclass: EC2NodeClass, status: NodeClassStatus) -> dict[str, Any]:
    options = nodeclass.metadata_options
    in_no_ipv6 = any(subnet.zone.startswith(_WITHOUT_IPV6_METADATA) for subnet in status.subnets)
    return {
        "HttpEndpoint": options.http_endpoint,
        **({} if in_no_ipv6 else {"HttpProtocolIpv6": options.http_protocol_ipv6}),
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        "HttpTokens": options.http_tokens,
        # Tag keys such as karpenter.sh/nodepool are not legal paths in the metadata service.
        "InstanceMetadataTags": "disabled",
    }


def _reserved(reservation: str) -> dict[str, Any]:
    """Return the settings to run only in this reservation, or in none: open reservations are meant for others."""
    if not reservation:
        return {"CapacityReservationPreference": "none"}
    return {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": reservation},
    }


def reservation_kind(reservation: str, status: NodeClassStatus) -> str:
    """Return the kind of a reservation: default, capacity-block or interruptible; empty for no reservation."""
    if not reservation:
        return ""
    capacity_reservation = next((r for r in status.capacity_reservations if r.id == reservation), None)
    if capacity_reservation is None:
        return "default"
    return "interruptible" if capacity_reservation.interruptible else capacity_reservation.kind


def _block_device(mapping: BlockDeviceMapping) -> dict[str, Any]:
    written: dict[str, Any] = {"DeviceName": mapping.device_name}
    if mapping.ebs is None:
        return written
    ebs, size = mapping.ebs, mapping.ebs.volume_size_bytes
    settings = {
        "VolumeSize": -(-size // GIB) if size else None,
        "VolumeType": ebs.volume_type or None,
        "Encrypted": ebs.encrypted,
        "DeleteOnTermination": ebs.delete_on_termination,
        "Iops": ebs.iops,
        "Throughput": ebs.throughput,
        "KmsKeyId": ebs.kms_key_id or None,
        "SnapshotId": ebs.snapshot_id or None,
        "VolumeInitializationRate": ebs.volume_initialization_rate,
    }
    return {**written, "Ebs": _set_fields(settings)}


def _interfaces(
    nodeclass: EC2NodeClass, status: NodeClassStatus, cluster: ClusterInfo, build: Build
) -> list[dict[str, Any]]:
    """Return the NodeClass's own interfaces, else one EFA interface per card if the claim requests EFA, else one.

    Where the first card takes none, it has an ordinary interface, and the others have EFA without IP.
    """
    if nodeclass.network_interfaces:
        interfaces = [
            (i.network_card_index, i.device_index, i.interface_type) for i in nodeclass.network_interfaces
        ]
    elif build.efa_interfaces and build.first_efa_card:
        cards = range(build.first_efa_card, build.first_efa_card + build.efa_interfaces)
        interfaces = [(0, 0, "interface"), *((card, 0, "efa-only") for card in cards)]
    elif build.efa_interfaces:
        interfaces = [(card, 1 if card else 0, "efa") for card in range(build.efa_interfaces)]
    else:
        interfaces = [(0, 0, "interface")]
    groups = [group.id for group in status.security_groups]
    addressing = _addressing(nodeclass, status, cluster, alone=len(interfaces) == 1)
    return [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": device,
            "InterfaceType": kind,
            "Groups": groups,
            **({} if kind == "efa-only" else addressing),
        }
        for card, device, kind in sorted(interfaces)
    ]


def _addressing(
    nodeclass: EC2NodeClass, status: NodeClassStatus, cluster: ClusterInfo, *, alone: bool
) -> dict[str, Any]:
    """Return the settings of interfaces that use IP. In wavelength zones, addresses come from the carrier's network.

    EC2 rejects a setting for public addresses if an instance has several interfaces, and assigns it none.
    """
    ipv6, prefixes = cluster.ip_family == "ipv6", nodeclass.ip_prefix_count
    tracking = nodeclass.connection_tracking
    at_carrier = bool(status.subnets) and all(_WAVELENGTH in subnet.zone for subnet in status.subnets)
    public = "AssociateCarrierIpAddress" if at_carrier else "AssociatePublicIpAddress"
    settings = {
        public: nodeclass.associate_public_ip_address if alone else None,
        "PrimaryIpv6": True if ipv6 else None,
        "Ipv6AddressCount": 1 if ipv6 else None,
        ("Ipv6PrefixCount" if ipv6 else "Ipv4PrefixCount"): prefixes,
        "ConnectionTrackingSpecification": _tracking(tracking) if tracking else None,
    }
    return _set_fields(settings)


def _tracking(tracking: ConnectionTracking) -> dict[str, Any]:
    return _set_fields(
        {
            "TcpEstablishedTimeout": tracking.tcp_established_timeout_seconds,
            "UdpStreamTimeout": tracking.udp_stream_timeout_seconds,
            "UdpTimeout": tracking.udp_timeout_seconds,
        }
    )


def _set_fields(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _digest(*content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


USER_DATA_LIMIT_BYTES = 16_384


def user_data(start: Start) -> str:
    """Return the plain text of the user data. For family Custom, this is the NodeClass's own, verbatim.

    Raises MalformedUserData.
    """
    family = start.nodeclass.ami_family
    if family == CUSTOM:
        return start.nodeclass.user_data
    if family == AL2023:
        return al2023_user_data(start)
    if family == AL2:
        return al2_user_data(start)
    if family == BOTTLEROCKET:
        return bottlerocket_user_data(start)
    return windows_user_data(start)
