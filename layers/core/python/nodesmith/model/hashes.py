"""Hashes of objects: Karpenter's for static drift, and content hashes, which compare two readings of an object."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from nodesmith.model.apimachinery.times import NEVER, nanoseconds, parse_time
from nodesmith.model.schema.reading import Manifest

# Hashes for static drift cover the fields that nodes are created from. Requirements and the results of selectors are
# compared in other ways. Changes of limits, weight and disruption replace no node. Sources: `NodePool.Hash` of core
# v1.14 and `EC2NodeClass.Hash` of the AWS provider v1.14.
NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODECLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
"""Annotations of NodePools, EC2NodeClasses and NodeClaims. The annotation `…-version` has the version of a hash."""
NODEPOOL_HASH_VERSION = "v3"
NODECLASS_HASH_VERSION = "v5"
CERTIFICATE_AUTHORITY = "certificateAuthority"
"""The name, among digests of an EC2NodeClass's fields, of what its hash covers besides: the cluster's CA bundle."""
OWN_VERSIONS = "nodesmith-"
"""Prefix of the hash versions of earlier releases, which used nodesmith's own rules."""
FIRST_HASH_VERSION = f"{OWN_VERSIONS}v1"


def stated_hash(annotation: str, value: str, version: str) -> dict[str, str]:
    """Return the annotations for a hash and its version."""
    return {annotation: value, f"{annotation}-version": version}


def nodepool_hash(template: Mapping[str, Any]) -> str:
    """Return the hash of a NodePool's `spec.template`, which was read with its defaults."""
    return str(TEMPLATE(template))


def nodeclass_hash(spec: Mapping[str, Any], ami_family: str) -> str:
    """Return the hash of an EC2NodeClass's spec, which was read with its defaults, without the cluster's CA bundle.

    `ami_family` is the resolved one. Kubelet fields that Karpenter v1.14 does not have change the hash, because
    nodesmith applies them to nodes. Karpenter v1.14 never sees such fields.
    """
    return str(NODECLASS_SPEC(spec) ^ text(ami_family) ^ text("") ^ _kubelet_beyond(spec))


def nodeclass_digests(spec: Mapping[str, Any], ami_family: str) -> dict[str, str]:
    """Return a digest, 8 hex digits, of each field that `nodeclass_hash` covers and that is set.

    They tell apart what differs between two specs whose hashes differ.
    """
    found = {
        f.json: f.hasher(spec[f.json]) for f in _NODECLASS_FIELDS if spec.get(f.json) not in (None, f.zero)
    }
    if beyond := _kubelet_beyond(spec):
        found["kubelet"] ^= beyond
    return {name: _short(value) for name, value in {**found, "amiFamily": text(ami_family)}.items()}


def bundle_digest(ca_bundle: str) -> str:
    """Return the digest of a cluster's CA bundle."""
    return _short(text(ca_bundle))


def _short(value: int) -> str:
    return f"{value:08x}"[-8:]


def _kubelet_beyond(spec: Mapping[str, Any]) -> int:
    """Hash the kubelet fields that Karpenter v1.14 does not have; 0 if there are none."""
    unknown = {k: v for k, v in spec.get("kubelet", {}).items() if k not in KUBELET_FIELDS}
    return text(json.dumps(unknown, sort_keys=True)) if unknown else 0


def hash_in_cluster(nodeclass_hash: str, ca_bundle: str) -> str:
    """Return the hash of an EC2NodeClass as in a cluster's annotations, which includes the CA bundle in base64.

    If `nodeclass_hash` already includes it, return the hash without it. Return "" if it is not a hash of the current
    version.
    """
    if not nodeclass_hash.isdecimal():
        return ""
    return str(int(nodeclass_hash) ^ text("") ^ text(ca_bundle))


# Readiness computes the content hash of what it reads from the API server and keeps it in the ledger. A decision
# compares it with the hash of the object in its snapshot. The hash is SHA-256 over everything that decisions read
# from the object.
OPTIONS_DOMAIN = "nodesmith.dev/"
"""The prefix of the annotations that decisions read."""


def content_hash(manifest: Manifest) -> str:
    """Return the hash, 64 hex digits, of a NodePool or EC2NodeClass that was read without fatal problems.

    It covers the spec with its defaults, nodesmith's annotations, the uid, the generation and whether the object is
    being deleted. Labels and other annotations affect no decision, so they are left out.
    """
    annotations: Mapping[str, str] = manifest.metadata.get("annotations") or {}
    options = {key: value for key, value in annotations.items() if key.startswith(OPTIONS_DOMAIN)}
    return _digest({**manifest.identity, "annotations": options, "spec": manifest.spec})


def spec_digest(manifest: Manifest) -> str:
    """Return a digest of a spec alone, 16 hex digits: the same again if a change of the object is taken back."""
    return _digest(manifest.spec)[:16]


def marked_content_hash(manifest: Manifest) -> str:
    """Return the hash of a NodeClaim. It includes labels and annotations, since its Node gets them as well."""
    marks = {part: manifest.metadata.get(part) or {} for part in ("labels", "annotations")}
    return _digest({**manifest.identity, **marks, "spec": manifest.spec})


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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


# Hashes of Go values are those of github.com/mitchellh/hashstructure/v2, FormatV2, 64-bit FNV-1. The options are
# SlicesAsSets, IgnoreZeroValue and ZeroNil. A hasher takes a value as it is in a manifest. An absent field is Go's
# zero value and is left out, and so is the zero value of a field that is not a pointer. An empty list or map that
# is present is not a zero value. Equal items of a list cancel each other out.
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
_NODECLASS_FIELDS = (
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
NODECLASS_SPEC = struct("EC2NodeClassSpec", *_NODECLASS_FIELDS)
