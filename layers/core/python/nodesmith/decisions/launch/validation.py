"""Which EC2NodeClasses cannot be launched from, and why, checked before anything is bought.

EBS has limits by volume type. Source: EC2's API reference (CreateVolume, LaunchTemplateEbsBlockDeviceRequest) and the
EBS user guide, as of 2026. A type that the mapping leaves to EC2 is not checked. EC2 refuses some addresses, and pods
of the cluster's IP family cannot reach others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from nodesmith.decisions.launch.templates import USER_DATA_LIMIT_BYTES, user_data
from nodesmith.decisions.launch.userdata.configurations import check_node_configs
from nodesmith.decisions.launch.userdata.starting import MalformedUserData, Start
from nodesmith.model.apimachinery.labels import NODECLASS, NODEPOOL, ON_DEMAND
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.ownership import (
    CLUSTER_TAG,
    FLEET_TAG,
    KEEP_VOLUMES_TAG,
    MANAGED_BY_TAG,
    NODECLAIM_TAG,
)
from nodesmith.model.nodeclasses.instancesettings import (
    AL2023,
    BOTTLEROCKET,
    CUSTOM,
    GIB,
    WINDOWS_FAMILIES,
    BlockDevice,
    BlockDeviceMapping,
    KubeletConfiguration,
)
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, version_fault
from nodesmith.model.nodeclasses.status import ClusterInfo


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a NodeClass cannot be launched from: a condition's reason, and a message that explains what to do.

    `field` is the field to change, empty if the cause is not in the NodeClass. `line` is a line of the field's text,
    counted from 1; 0 if it is not a text, or no single line is wrong.
    """

    reason: str
    message: str
    field: str = ""
    line: int = 0


PID = "pid"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in ("h", "m", "s", "ms")))


def family_obstacle(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    """Return the first setting that the NodeClass's image family does not have, None if there is none.

    Without that, it would be ignored, and nodes would differ from what their owner asked for.
    """
    if nodeclass.ami_family in WINDOWS_FAMILIES and (obstacle := _not_for_windows(nodeclass, cluster)):
        return obstacle
    for field, message in _unmapped(nodeclass):
        path = f"spec.kubelet.{field}"
        return Obstacle("UnsupportedKubeletConfiguration", f"{path}: {message}", path)
    return None


def _not_for_windows(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    family = nodeclass.ami_family
    if cluster.ip_family == "ipv6":
        return Obstacle(
            "UnsupportedAMIFamily",
            f"spec.amiFamily is {family}, and Windows nodes cannot join an IPv6 cluster: use a Linux family",
            "spec.amiFamily",
        )
    if nodeclass.instance_store_policy:
        policy = nodeclass.instance_store_policy
        message = f"spec.instanceStorePolicy is {policy}, and {family} does not combine disks: remove it"
        return Obstacle("UnsupportedField", message, "spec.instanceStorePolicy")
    return None


def _not_for_bottlerocket(kubelet: KubeletConfiguration) -> Iterator[tuple[str, str]]:
    """Yield what Bottlerocket's model of settings refuses. The node would start without any of its settings."""
    if kubelet.pods_per_core is not None:
        yield "podsPerCore", "Bottlerocket has no such setting: use maxPods"
    for name, reserved in (
        ("systemReserved", kubelet.system_reserved),
        ("kubeReserved", kubelet.kube_reserved),
    ):
        if PID in reserved:
            yield (
                f"{name}.{PID}",
                "Bottlerocket reserves cpu, memory and ephemeral-storage only: leave it out",
            )
    for name, signals in (("evictionHard", kubelet.eviction_hard), ("evictionSoft", kubelet.eviction_soft)):
        for signal in sorted(signals):
            if signals[signal].endswith("%") and float(signals[signal][:-1]) >= 100:
                yield (
                    f"{name}[{signal}]",
                    "Bottlerocket allows less than 100%: write 0% to switch the signal off",
                )
    periods = kubelet.eviction_soft_grace_period
    for signal in sorted(periods):
        if not _DURATION.fullmatch(periods[signal]):
            text = f"is {periods[signal]}, and Bottlerocket reads h, m, s and ms in this order: write 1m30s"
            yield f"evictionSoftGracePeriod[{signal}]", text


def _unmapped(nodeclass: EC2NodeClass) -> Iterator[tuple[str, str]]:
    """Yield the kubelet settings that the family's user data cannot express, each with what to do."""
    family, kubelet = nodeclass.ami_family, nodeclass.kubelet
    if family in (AL2023, CUSTOM):
        return
    if family == BOTTLEROCKET:
        yield from _not_for_bottlerocket(kubelet)
    elif len(kubelet.cluster_dns) > 1:
        count = len(kubelet.cluster_dns)
        yield (
            "clusterDNS",
            f"has {count} addresses, and {family} passes one to the kubelet: keep one, or use AL2023",
        )
    for name in sorted(kubelet.other):
        yield (
            name,
            f"{family} cannot set it: leave it out, or use AL2023, which can set any field of the kubelet",
        )


_OUR_TAGS = frozenset(
    {CLUSTER_TAG, FLEET_TAG, MANAGED_BY_TAG, KEEP_VOLUMES_TAG, NODEPOOL, NODECLAIM_TAG, NODECLASS}
)
_MAX_OWN_TAGS = 41  # EC2 allows 50 on a resource; a launch adds up to nine of nodesmith's
_MAX_TAG_KEY, _MAX_TAG_VALUE = 128, 256


def launch_obstacle(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    """Return the first problem of the NodeClass that prevents every launch, None if there is none."""
    return (
        family_obstacle(nodeclass, cluster)
        or _no_such_image(nodeclass)
        or _no_cidr(nodeclass, cluster)
        or _bad_tag(nodeclass)
        or _bad_volume(nodeclass)
        or _bad_address(nodeclass, cluster)
        or _bad_user_data(nodeclass, cluster)
    )


def _no_such_image(nodeclass: EC2NodeClass) -> Obstacle | None:
    faults = (version_fault(term.alias) for term in nodeclass.ami_selector_terms if term.alias)
    fault = next(filter(None, faults), "")
    field = "spec.amiSelectorTerms"
    return Obstacle("AMINotFound", f"{field}: {fault}", field) if fault else None


def _no_cidr(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    if cluster.service_cidr or nodeclass.ami_family != AL2023:
        return None
    return Obstacle(
        "ClusterCIDRResolutionFailed",
        "the cluster's service CIDR is unknown: allow eks:DescribeCluster or set CLUSTER_SERVICE_CIDR",
    )


def _bad_tag(nodeclass: EC2NodeClass) -> Obstacle | None:
    """Return the first tag that exceeds EC2's limits or that nodesmith finds its instances by.

    Case does not matter, since IAM's conditions ignore it.
    """
    for key, value in sorted(nodeclass.tags.items()):
        wrong = None
        if key.lower() in _OUR_TAGS or key.lower().startswith("kubernetes.io/cluster"):
            wrong = "is set by nodesmith itself: remove it"
        elif key.lower().startswith("aws:"):
            wrong = "begins with aws:, which AWS keeps for itself: rename it"
        elif not 1 <= len(key) <= _MAX_TAG_KEY or len(value) > _MAX_TAG_VALUE:
            wrong = f"is too long or empty: keys have 1–{_MAX_TAG_KEY} characters, values at most {_MAX_TAG_VALUE}"
        if wrong:
            message = f"spec.tags[{key[:_MAX_TAG_KEY]!r}] {wrong}"
            return Obstacle("TagValidationFailed", message, f"spec.tags[{key}]")
    if len(nodeclass.tags) > _MAX_OWN_TAGS:
        return Obstacle(
            "TagValidationFailed",
            f"spec.tags has {len(nodeclass.tags)} tags: EC2 leaves room for {_MAX_OWN_TAGS}",
            "spec.tags",
        )
    return None


def _bad_volume(nodeclass: EC2NodeClass) -> Obstacle | None:
    from nodesmith.decisions.launch.validation import volume_obstacle

    return volume_obstacle(nodeclass.block_device_mappings)


def _bad_address(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    from nodesmith.decisions.launch.validation import address_obstacle

    return address_obstacle(nodeclass, cluster)


def _bad_user_data(nodeclass: EC2NodeClass, cluster: ClusterInfo) -> Obstacle | None:
    try:
        size = len(nodeclass.user_data.encode())
        if size <= USER_DATA_LIMIT_BYTES:  # user data that is too large by itself need not be parsed
            size = len(user_data(Start(_PLAIN_CLAIM, ON_DEMAND, 110, nodeclass, cluster)).encode())
            if nodeclass.ami_family == AL2023:
                check_node_configs(nodeclass.user_data)
    except MalformedUserData as error:
        return Obstacle("UserDataInvalid", f"spec.userData: {error}", "spec.userData", error.line)
    except UnicodeEncodeError as error:
        return Obstacle("UserDataInvalid", f"spec.userData: {error}", "spec.userData")
    if size <= USER_DATA_LIMIT_BYTES:
        return None
    return Obstacle(
        "UserDataSizeLimitExceeded",
        f"spec.userData: with the cluster's own settings it has {size} bytes, but EC2 accepts {USER_DATA_LIMIT_BYTES}: "
        "fetch the larger part from S3 at boot",
        "spec.userData",
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The smallest possible claim: user data that is too large with it is too large with any claim.
_PLAIN_CLAIM = NodeClaim("", "", NodeClassRef(""), _EPOCH, Phase.PENDING, _EPOCH)


_VOLUME_REASON = "BlockDeviceMappingInvalid"
_BOOT_DEVICES = ("/dev/xvda", "/dev/sda1")
_GP3_BASELINE_IOPS = 3000
_THROUGHPUT = (125, 2000)
_IOPS_PER_MIB = 4
"""gp3: the IOPS that each MiB/s of throughput needs."""


class _Limits(NamedTuple):
    """The limits of a volume type; `iops` is None if IOPS cannot be provisioned. Sizes are in GiB."""

    size: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gib: int = 0
    needs_iops: bool = False
    boots: bool = True


_TYPES = {
    "gp3": _Limits((1, 65_536), (_GP3_BASELINE_IOPS, 80_000), 500),
    "io2": _Limits((4, 65_536), (100, 256_000), 1000, needs_iops=True),
    "io1": _Limits((4, 16_384), (100, 64_000), 50, needs_iops=True),
    "gp2": _Limits((1, 16_384)),
    "st1": _Limits((125, 16_384), boots=False),
    "sc1": _Limits((125, 16_384), boots=False),
    "standard": _Limits((1, 1024)),
}


class _Fault(NamedTuple):
    field: str
    message: str


def volume_obstacle(mappings: Sequence[BlockDeviceMapping]) -> Obstacle | None:
    """Return the first fault of a NodeClass's own block device mappings, None if there is none."""
    faults = ((f"spec.blockDeviceMappings[{i}]", fault) for i, fault in _faults(mappings))
    for path, fault in faults:
        field = f"{path}.{fault.field}"
        return Obstacle(_VOLUME_REASON, f"{field} {fault.message}", field)
    return None


def _faults(mappings: Sequence[BlockDeviceMapping]) -> Iterator[tuple[int, _Fault]]:
    names: dict[str, int] = {}
    for number, mapping in enumerate(mappings):
        name = mapping.device_name
        if not name:
            yield number, _Fault("deviceName", "is missing: write a name such as /dev/xvda")
        elif names.setdefault(name, number) != number:
            path = f"spec.blockDeviceMappings[{names[name]}]"
            yield number, _Fault("deviceName", f"is {name}, as in {path}: give each volume its own name")
        if mapping.ebs is not None:
            yield from ((number, fault) for fault in _volume_faults(name, mapping.ebs))


def _volume_faults(device: str, ebs: BlockDevice) -> Iterator[_Fault]:
    if ebs.kms_key_id and ebs.encrypted is False:
        yield _Fault("ebs.encrypted", "is false, but kmsKeyID names a key: leave out one of them")
    for name, value in (("ebs.iops", ebs.iops), ("ebs.throughput", ebs.throughput)):
        if value is not None and value < 1:
            yield _Fault(name, f"is {value:,}: write a positive number, or leave it out")
    limits = _TYPES.get(ebs.volume_type)
    if limits is None:
        return
    if device in _BOOT_DEVICES and not limits.boots:
        yield _Fault("ebs.volumeType", f"is {ebs.volume_type}, from which no instance boots: use gp3")
    size = ebs.volume_size_bytes
    gibibytes = -(-size // GIB) if size else None
    yield from chain(
        _size_faults(gibibytes, ebs.volume_type, limits),
        _iops_faults(gibibytes, ebs, limits),
        _throughput_faults(ebs),
    )


def _size_faults(gibibytes: int | None, kind: str, limits: _Limits) -> Iterator[_Fault]:
    minimum, maximum = limits.size
    if gibibytes is not None and not minimum <= gibibytes <= maximum:
        yield _Fault(
            "ebs.volumeSize", f"is {gibibytes:,} GiB, but {kind} volumes have {minimum:,} to {maximum:,} GiB"
        )


def _iops_faults(gibibytes: int | None, ebs: BlockDevice, limits: _Limits) -> Iterator[_Fault]:
    kind, iops = ebs.volume_type, ebs.iops
    if iops is None:
        if limits.needs_iops:
            yield _Fault("ebs.iops", f"is missing, but {kind} volumes need it: set it, or use gp3")
        return
    if limits.iops is None:
        yield _Fault("ebs.iops", f"is {iops:,}, but {kind} volumes have none: leave it out, or use gp3")
        return
    minimum, maximum = limits.iops
    if not minimum <= iops <= maximum:
        yield _Fault("ebs.iops", f"is {iops:,}, but {kind} volumes have {minimum:,} to {maximum:,}")
    elif gibibytes is not None and iops > max(minimum, gibibytes * limits.iops_per_gib):
        needed = -(-iops // limits.iops_per_gib)
        allowed = max(minimum, gibibytes * limits.iops_per_gib)
        yield _Fault(
            "ebs.iops",
            f"is {iops:,}, but {kind} volumes of {gibibytes:,} GiB have {allowed:,} at most "
            f"({limits.iops_per_gib:,} per GiB): lower it, or set volumeSize to {needed}Gi or more",
        )


def _throughput_faults(ebs: BlockDevice) -> Iterator[_Fault]:
    field, throughput, (lowest, highest) = "ebs.throughput", ebs.throughput, _THROUGHPUT
    if throughput is None:
        return
    if ebs.volume_type != "gp3":
        yield _Fault(field, f"is {throughput:,}, but only gp3 volumes have it: leave it out, or use gp3")
    elif not lowest <= throughput <= highest:
        yield _Fault(field, f"is {throughput:,}, but gp3 volumes have {lowest:,} to {highest:,} MiB/s")
    elif throughput * _IOPS_PER_MIB > (ebs.iops or _GP3_BASELINE_IOPS):
        iops = f"{ebs.iops:,}" if ebs.iops else f"{_GP3_BASELINE_IOPS:,} (the default)"
        yield _Fault(
            field,
            f"is {throughput:,} MiB/s, for which iops must be {throughput * _IOPS_PER_MIB:,} or more, "
            f"not {iops}",
        )


_ADDRESS_REASON = "IPFamilyMismatch"
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
            return Obstacle(_ADDRESS_REASON, f"{field} is {text!r}, {wrong}", field)
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
