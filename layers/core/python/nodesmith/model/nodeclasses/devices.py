"""EC2NodeClass settings of the instance itself: volumes, network interfaces, metadata service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nodesmith.model.apimachinery.quantities import whole_units

GIB = 2**30


class BlockDevice(NamedTuple):
    """An EBS volume. None or an empty text leaves a setting to EC2."""

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
        """The size in bytes; None if it comes from the snapshot."""
        return whole_units(self.volume_size) if self.volume_size else None


class BlockDeviceMapping(NamedTuple):
    """A device name and the volume behind it."""

    device_name: str = ""
    ebs: BlockDevice | None = None
    root_volume: bool = False


class NetworkInterface(NamedTuple):
    """One network interface. `interface_type` is interface or efa-only."""

    network_card_index: int
    device_index: int
    interface_type: str


class MetadataOptions(NamedTuple):
    """Options of the instance metadata service. The default is IMDSv2 only, with one hop."""

    http_endpoint: str = "enabled"
    http_protocol_ipv6: str = "disabled"
    http_put_response_hop_limit: int = 1
    http_tokens: str = "required"


DEFAULT_METADATA_OPTIONS = MetadataOptions()


class ConnectionTracking(NamedTuple):
    """Idle timeouts of tracked connections. None leaves a timeout to EC2."""

    tcp_established_timeout_seconds: int | None = None
    udp_stream_timeout_seconds: int | None = None
    udp_timeout_seconds: int | None = None


def _default_device(name: str, gibibytes: int) -> BlockDeviceMapping:
    return BlockDeviceMapping(name, BlockDevice(f"{gibibytes}Gi", "gp3", encrypted=True))


AL2023, AL2, BOTTLEROCKET, CUSTOM = "AL2023", "AL2", "Bottlerocket", "Custom"
WINDOWS_FAMILIES = ("Windows2019", "Windows2022", "Windows2025")
DEFAULT_BLOCK_DEVICES: Mapping[str, tuple[BlockDeviceMapping, ...]] = {
    AL2: (_default_device("/dev/xvda", 20),),
    AL2023: (_default_device("/dev/xvda", 20),),
    BOTTLEROCKET: (_default_device("/dev/xvda", 4), _default_device("/dev/xvdb", 20)),
    CUSTOM: (),
    **dict.fromkeys(WINDOWS_FAMILIES, (_default_device("/dev/sda1", 50),)),
}
"""AMI family → its volumes if `spec.blockDeviceMappings` is empty. The last one holds the pods' storage."""
