"""EC2NodeClass settings of the instance itself: kubelet, volumes, network interfaces, metadata service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap, freeze, thaw
from nodesmith.model.apimachinery.quantities import (
    NOTHING,
    Resources,
    format_resources,
    parse_resources,
    whole_units,
)


@dataclass(frozen=True, slots=True)
class KubeletConfiguration:
    """The kubelet configuration. Hashable, so that calculations over instance types can be cached by it.

    None leaves a setting to the node image. Eviction signals map to a quantity (`100Mi`) or a percentage (`5%`), and
    grace periods to a Go duration (`1m30s`).
    """

    cluster_dns: tuple[str, ...] = ()
    max_pods: int | None = None
    pods_per_core: int | None = None
    system_reserved: Resources = NOTHING
    kube_reserved: Resources = NOTHING
    eviction_hard: Mapping[str, str] = NO_ITEMS
    eviction_soft: Mapping[str, str] = NO_ITEMS
    eviction_soft_grace_period: Mapping[str, str] = NO_ITEMS
    eviction_max_pod_grace_period: int | None = None
    image_gc_high_threshold_percent: int | None = None
    image_gc_low_threshold_percent: int | None = None
    cpu_cfs_quota: bool | None = None
    other: Mapping[str, object] = FrozenMap()
    """Fields beyond these twelve, unchanged. Only AL2023 supports them."""


DEFAULT_KUBELET = KubeletConfiguration()

_PLAIN = {
    "maxPods": "max_pods",
    "podsPerCore": "pods_per_core",
    "evictionMaxPodGracePeriod": "eviction_max_pod_grace_period",
    "imageGCHighThresholdPercent": "image_gc_high_threshold_percent",
    "imageGCLowThresholdPercent": "image_gc_low_threshold_percent",
    "cpuCFSQuota": "cpu_cfs_quota",
}
_RESERVED = {"systemReserved": "system_reserved", "kubeReserved": "kube_reserved"}
_SIGNALS = {
    "evictionHard": "eviction_hard",
    "evictionSoft": "eviction_soft",
    "evictionSoftGracePeriod": "eviction_soft_grace_period",
}


def read_kubelet(spec: Mapping[str, Any]) -> KubeletConfiguration:
    """Read a `spec.kubelet` that has passed its schema."""
    fields: dict[str, Any] = {field: spec[name] for name, field in _PLAIN.items() if name in spec}
    fields |= {field: parse_resources(spec[name]) for name, field in _RESERVED.items() if name in spec}
    fields |= {field: FrozenMap(spec[name]) for name, field in _SIGNALS.items() if name in spec}
    known = {"clusterDNS", *_PLAIN, *_RESERVED, *_SIGNALS}
    other = FrozenMap({name: freeze(value) for name, value in spec.items() if name not in known})
    return KubeletConfiguration(cluster_dns=tuple(spec.get("clusterDNS", ())), other=other, **fields)


def write_kubelet(kubelet: KubeletConfiguration) -> dict[str, object]:
    """Return the settings with the field names of a KubeletConfiguration file, without unset ones."""
    written: dict[str, object] = {name: thaw(value) for name, value in sorted(kubelet.other.items())}
    if kubelet.cluster_dns:
        written["clusterDNS"] = list(kubelet.cluster_dns)
    for name, field in _PLAIN.items():
        if getattr(kubelet, field) is not None:
            written[name] = getattr(kubelet, field)
    written |= {n: format_resources(getattr(kubelet, o)) for n, o in _RESERVED.items() if getattr(kubelet, o)}
    written |= {n: dict(getattr(kubelet, o)) for n, o in _SIGNALS.items() if getattr(kubelet, o)}
    return written


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
