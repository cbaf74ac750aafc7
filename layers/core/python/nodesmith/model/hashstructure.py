"""Hashes of Go values and structs as in Karpenter: mitchellh/hashstructure/v2, FormatV2, 64-bit FNV-1.

The options are SlicesAsSets, IgnoreZeroValue and ZeroNil. A hasher takes a value as it is in a manifest. An absent
field is Go's zero value and is left out, and so is the zero value of a field that is not a pointer. An empty list or
map that is present is not a zero value. Equal items of a list cancel each other out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from nodesmith.model.apimachinery.times import NEVER, nanoseconds, parse_time

Hasher: TypeAlias = Callable[[Any], int]

_BASIS, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1
_SURROGATES = re.compile("[\ud800-\udfff]")


class Field(NamedTuple):
    """A field of a Go struct: its name in manifests, its name in Go, and the hasher of its value.

    `zero` is the value that counts as absent, None for a pointer, a list or a map, for which only null does.
    """

    json: str
    name: str
    hasher: Hasher
    zero: object = None


def struct(name: str, *fields: Field) -> Hasher:
    """Return a hasher for structs of this Go type, with their fields in Go's order."""

    def hashed(value: Mapping[str, Any]) -> int:
        total = text(name)
        for field in fields:
            item = value.get(field.json)
            if item is not None and item != field.zero:
                total = _bytes8(total ^ _pair(text(field.name), field.hasher(item)))
        return total

    return hashed


def slice_of(hasher: Hasher) -> Hasher:
    """Return a hasher for lists, which are hashed as sets."""

    def hashed(items: list[Any]) -> int:
        total = 0
        for item in items:
            total ^= hasher(item)
        return total

    return hashed


def map_of(hasher: Hasher) -> Hasher:
    """Return a hasher for maps with text as keys."""

    def hashed(items: Mapping[str, Any]) -> int:
        total = 0
        for key, item in items.items():
            total ^= _pair(text(key), hasher(item))
        return _bytes8(total)

    return hashed


@lru_cache(maxsize=1024)
def text(value: str) -> int:
    """Hash a string. Half of a surrogate pair counts as U+FFFD, which Go's decoder replaces it with."""
    return raw(_SURROGATES.sub("\ufffd", value).encode())


def int32(value: int) -> int:
    """Hash an int32."""
    return raw((value & 2**32 - 1).to_bytes(4, "little"))


def int64(value: int) -> int:
    """Hash an int64."""
    return _bytes8(value & _MASK)


def boolean(value: bool) -> int:
    """Hash a bool."""
    return raw(bytes((value,)))


def raw(data: bytes) -> int:
    """Hash bytes."""
    total = _BASIS
    for byte in data:
        total = total * _PRIME & _MASK ^ byte
    return total


def _bytes8(value: int) -> int:
    return raw(value.to_bytes(8, "little"))


def _pair(first: int, second: int) -> int:
    return raw(first.to_bytes(8, "little") + second.to_bytes(8, "little"))


# The structs of core v1.14 and the AWS provider v1.14. Each field has its name in manifests and its name in Go, in
# Go's order. Fields that Karpenter excludes from the hash are missing. Sources: pkg/apis/v1 in
# sigs.k8s.io/karpenter and in github.com/aws/karpenter-provider-aws.
_VOLUME_UNITS = {"Gi": ("Ti", 1024), "G": ("T", 1000)}


def _quantity(size: str) -> int:
    """Hash a volume's size in Kubernetes' canonical form: 1024Gi is 1Ti."""
    number, unit = int(size.rstrip("GTi")), size.lstrip("0123456789")
    larger, step = _VOLUME_UNITS.get(unit, ("", 0))
    return text(f"{number // step}{larger}" if step and number % step == 0 else size)


def _time(moment: str) -> int:
    """Hash a time as Go's time.MarshalBinary writes it if the local time zone is UTC, as in Karpenter's container."""
    since = parse_time(moment) - datetime(1, 1, 1, tzinfo=UTC)
    nanos = since.microseconds * 1000
    return raw(
        b"\1" + (since // timedelta(seconds=1)).to_bytes(8, "big") + nanos.to_bytes(4, "big") + b"\0\0"
    )


_TIME = struct("Time", Field("time", "Time", _time))
_DURATION = struct("Duration", Field("ns", "Duration", int64, zero=0))
_NILLABLE_DURATION = struct("NillableDuration", Field("ns", "Duration", int64))


def _duration(span: str) -> int:
    return _DURATION({"ns": nanoseconds(span)})


def _resource(amount: object) -> int:
    """Hash an amount. Karpenter only accepts text, but nodesmith also accepts numbers."""
    return text(str(amount))


_TEXTS = map_of(text)
_TAINTS = slice_of(
    struct(
        "Taint",
        Field("key", "Key", text, ""),
        Field("value", "Value", text, ""),
        Field("effect", "Effect", text, ""),
        Field("timeAdded", "TimeAdded", lambda moment: _TIME({"time": moment})),
    )
)
TEMPLATE = struct(
    "NodeClaimTemplate",
    Field(
        "metadata",
        "ObjectMeta",
        struct("ObjectMeta", Field("labels", "Labels", _TEXTS), Field("annotations", "Annotations", _TEXTS)),
        {},
    ),
    Field(
        "spec",
        "Spec",
        struct(
            "NodeClaimTemplateSpec",
            Field("taints", "Taints", _TAINTS),
            Field("startupTaints", "StartupTaints", _TAINTS),
            Field(
                "nodeClassRef",
                "NodeClassRef",
                struct(
                    "NodeClassReference",
                    Field("kind", "Kind", text, ""),
                    Field("name", "Name", text, ""),
                    Field("group", "Group", text, ""),
                ),
            ),
            Field("terminationGracePeriod", "TerminationGracePeriod", _duration),
            Field(
                "expireAfter",
                "ExpireAfter",
                lambda span: _NILLABLE_DURATION({"ns": nanoseconds(span)}),
                NEVER,
            ),
        ),
    ),
)

_KUBELET_FIELDS = (
    Field("clusterDNS", "ClusterDNS", slice_of(text)),
    Field("maxPods", "MaxPods", int32),
    Field("podsPerCore", "PodsPerCore", int32),
    Field("systemReserved", "SystemReserved", map_of(_resource)),
    Field("kubeReserved", "KubeReserved", map_of(_resource)),
    Field("evictionHard", "EvictionHard", _TEXTS),
    Field("evictionSoft", "EvictionSoft", _TEXTS),
    Field("evictionSoftGracePeriod", "EvictionSoftGracePeriod", map_of(_duration)),
    Field("evictionMaxPodGracePeriod", "EvictionMaxPodGracePeriod", int32),
    Field("imageGCHighThresholdPercent", "ImageGCHighThresholdPercent", int32),
    Field("imageGCLowThresholdPercent", "ImageGCLowThresholdPercent", int32),
    Field("cpuCFSQuota", "CPUCFSQuota", boolean),
)
KUBELET_FIELDS = frozenset(field.json for field in _KUBELET_FIELDS)
"""The fields of `spec.kubelet` in Karpenter v1.14."""
_BLOCK_DEVICE = struct(
    "BlockDevice",
    Field("deleteOnTermination", "DeleteOnTermination", boolean),
    Field("encrypted", "Encrypted", boolean),
    Field("iops", "IOPS", int64),
    Field("kmsKeyID", "KMSKeyID", text),
    Field("snapshotID", "SnapshotID", text),
    Field("throughput", "Throughput", int64),
    Field("volumeInitializationRate", "VolumeInitializationRate", int32),
    Field("volumeSize", "VolumeSize", _quantity),
    Field("volumeType", "VolumeType", text),
)
NODECLASS_SPEC = struct(
    "EC2NodeClassSpec",
    Field(
        "placementGroupSelector",
        "PlacementGroupSelector",
        struct("PlacementGroupSelector", Field("name", "Name", text), Field("id", "ID", text)),
    ),
    Field("associatePublicIPAddress", "AssociatePublicIPAddress", boolean),
    Field("userData", "UserData", text),
    Field("role", "Role", text, ""),
    Field("instanceProfile", "InstanceProfile", text),
    Field("tags", "Tags", _TEXTS),
    Field("kubelet", "Kubelet", struct("KubeletConfiguration", *_KUBELET_FIELDS)),
    Field(
        "blockDeviceMappings",
        "BlockDeviceMappings",
        slice_of(
            struct(
                "BlockDeviceMapping",
                Field("deviceName", "DeviceName", text),
                Field("ebs", "EBS", _BLOCK_DEVICE),
                Field("rootVolume", "RootVolume", boolean, False),
            )
        ),
    ),
    Field("instanceStorePolicy", "InstanceStorePolicy", text),
    Field(
        "networkInterfaces",
        "NetworkInterfaces",
        slice_of(
            struct(
                "NetworkInterface",
                Field("networkCardIndex", "NetworkCardIndex", int32, 0),
                Field("deviceIndex", "DeviceIndex", int32, 0),
                Field("interfaceType", "InterfaceType", text, ""),
            )
        ),
    ),
    Field("detailedMonitoring", "DetailedMonitoring", boolean),
    Field(
        "metadataOptions",
        "MetadataOptions",
        struct(
            "MetadataOptions",
            Field("httpEndpoint", "HTTPEndpoint", text),
            Field("httpProtocolIPv6", "HTTPProtocolIPv6", text),
            Field("httpPutResponseHopLimit", "HTTPPutResponseHopLimit", int64),
            Field("httpTokens", "HTTPTokens", text),
        ),
    ),
    Field(
        "connectionTracking",
        "ConnectionTracking",
        struct(
            "ConnectionTracking",
            Field("tcpEstablishedTimeout", "TCPEstablishedTimeout", int32),
            Field("udpStreamTimeout", "UDPStreamTimeout", int32),
            Field("udpTimeout", "UDPTimeout", int32),
        ),
    ),
    Field("context", "Context", text),
    Field(
        "cpuOptions",
        "CPUOptions",
        struct("CPUOptions", Field("nestedVirtualization", "NestedVirtualization", text)),
    ),
)
