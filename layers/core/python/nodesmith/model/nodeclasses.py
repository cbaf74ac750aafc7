"""EC2NodeClass, karpenter.k8s.aws/v1: how nodes are built on EC2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodesmith.model.frozen import NO_ITEMS
from nodesmith.model.kubelet import DEFAULT_KUBELET, KubeletConfiguration
from nodesmith.model.quantities import whole_units

GIB = 2**30


@dataclass(frozen=True, slots=True)
class SubnetSelectorTerm:
    """Subnets by id, or by tags (the value `*` matches any)."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""


@dataclass(frozen=True, slots=True)
class SecurityGroupSelectorTerm:
    """Security groups by id, by group name (not the Name tag), or by tags."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class CapacityReservationSelectorTerm:
    """Capacity reservations by id, or by tags, owner and instance match criteria."""

    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    owner_id: str = ""
    instance_match_criteria: str = ""


@dataclass(frozen=True, slots=True)
class PlacementGroupSelector:
    """One placement group, by name or by id."""

    name: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class AMISelectorTerm:
    """Machine images by alias (`al2023@latest`), id, name, SSM parameter or tags."""

    alias: str = ""
    tags: Mapping[str, str] = NO_ITEMS
    id: str = ""
    name: str = ""
    owner: str = ""
    ssm_parameter: str = ""


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """An EBS volume. None and empty texts leave a setting to EC2."""

    volume_size: str = ""
    volume_type: str = ""
    encrypted: bool | None = None
    delete_on_termination: bool | None = None
    iops: int | None = None
    throughput: int | None = None
    kms_key_id: str = ""
    snapshot_id: str = ""
    volume_initialization_rate: int | None = None

    @property
    def volume_size_bytes(self) -> int | None:
        """None where the size comes from the snapshot."""
        return whole_units(self.volume_size) if self.volume_size else None


@dataclass(frozen=True, slots=True)
class BlockDeviceMapping:
    """A device name and the volume behind it."""

    device_name: str = ""
    ebs: BlockDevice | None = None
    root_volume: bool = False


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    """One network interface; `interface_type` is interface or efa-only."""

    network_card_index: int
    device_index: int
    interface_type: str


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """The instance metadata service: IMDSv2 only and one hop, unless told otherwise."""

    http_endpoint: str = "enabled"
    http_protocol_ipv6: str = "disabled"
    http_put_response_hop_limit: int = 1
    http_tokens: str = "required"


@dataclass(frozen=True, slots=True)
class ConnectionTracking:
    """Idle time-outs of tracked connections; None leaves one to EC2."""

    tcp_established_timeout_seconds: int | None = None
    udp_stream_timeout_seconds: int | None = None
    udp_timeout_seconds: int | None = None


def _default_device(name: str, gibibytes: int) -> BlockDeviceMapping:
    return BlockDeviceMapping(name, BlockDevice(f"{gibibytes}Gi", "gp3", encrypted=True))


AL2023, AL2, BOTTLEROCKET, CUSTOM = "AL2023", "AL2", "Bottlerocket", "Custom"
WINDOWS_FAMILIES = ("Windows2019", "Windows2022", "Windows2025")
AMI_FAMILIES = (AL2, AL2023, BOTTLEROCKET, CUSTOM, *WINDOWS_FAMILIES)
DEFAULT_BLOCK_DEVICES: Mapping[str, tuple[BlockDeviceMapping, ...]] = {
    AL2: (_default_device("/dev/xvda", 20),),
    AL2023: (_default_device("/dev/xvda", 20),),
    BOTTLEROCKET: (_default_device("/dev/xvda", 4), _default_device("/dev/xvdb", 20)),
    CUSTOM: (),
    **dict.fromkeys(WINDOWS_FAMILIES, (_default_device("/dev/sda1", 50),)),
}
"""What a family gets where `spec.blockDeviceMappings` is empty; the last one holds the pods' storage."""


@dataclass(frozen=True, slots=True)
class EC2NodeClass:
    """An EC2NodeClass with its defaults filled in."""

    name: str
    ami_family: str = AL2023
    """Resolved: `spec.amiFamily`, else the family of the alias."""
    ami_selector_terms: tuple[AMISelectorTerm, ...] = ()
    subnet_selector_terms: tuple[SubnetSelectorTerm, ...] = ()
    security_group_selector_terms: tuple[SecurityGroupSelectorTerm, ...] = ()
    capacity_reservation_selector_terms: tuple[CapacityReservationSelectorTerm, ...] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    associate_public_ip_address: bool | None = None
    ip_prefix_count: int | None = None
    user_data: str = ""
    role: str = ""
    instance_profile: str = ""
    tags: Mapping[str, str] = NO_ITEMS
    kubelet: KubeletConfiguration = DEFAULT_KUBELET
    block_device_mappings: tuple[BlockDeviceMapping, ...] = ()
    instance_store_policy: str = ""
    network_interfaces: tuple[NetworkInterface, ...] = ()
    detailed_monitoring: bool | None = None
    metadata_options: MetadataOptions = MetadataOptions()
    connection_tracking: ConnectionTracking | None = None
    nested_virtualization: str = ""
    context: str = ""
    annotations: Mapping[str, str] = NO_ITEMS
    uid: str = ""
    generation: int = 0
    hash: str = ""
    """Of the fields whose change replaces nodes (static drift)."""
    deleting: bool = False

    @property
    def block_devices(self) -> tuple[BlockDeviceMapping, ...]:
        """The mappings to launch with: the user's, else the family's own."""
        return self.block_device_mappings or DEFAULT_BLOCK_DEVICES[self.ami_family]

    @property
    def root_volume_bytes(self) -> int:
        """Size of the volume that holds pods' ephemeral storage (instance stores aside).

        The mapping marked rootVolume, else the family's own device (Custom: the last), else its default.
        """
        marked = next((m for m in self.block_device_mappings if m.root_volume), None)
        usual = next((m for m in reversed(self.block_device_mappings) if self._holds_pods(m)), None)
        for mapping in (marked, usual, *reversed(DEFAULT_BLOCK_DEVICES[self.ami_family])):
            size = mapping.ebs.volume_size_bytes if mapping and mapping.ebs else None
            if size:
                return size
        return 20 * GIB

    def _holds_pods(self, mapping: BlockDeviceMapping) -> bool:
        usual = DEFAULT_BLOCK_DEVICES[self.ami_family]
        return not usual or mapping.device_name == usual[-1].device_name
