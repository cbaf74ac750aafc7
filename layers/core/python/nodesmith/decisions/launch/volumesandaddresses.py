"""Volumes and addresses of an EC2NodeClass that cannot be launched with.

EBS has limits by volume type. Source: EC2's API reference (CreateVolume, LaunchTemplateEbsBlockDeviceRequest) and the
EBS user guide, as of 2026: gp3 volumes have up to 64 TiB, 80,000 IOPS and 2,000 MiB/s. A type that the mapping leaves
to EC2 is not checked. EC2 refuses some addresses, and pods of the cluster's IP family cannot reach others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from nodesmith.decisions.launch.obstacles import Obstacle
from nodesmith.model.nodeclasses.instancesettings import GIB, BlockDevice, BlockDeviceMapping
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo

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
    found = ((f"spec.blockDeviceMappings[{i}]", fault) for i, fault in _faults(mappings))
    for where, fault in found:
        field = f"{where}.{fault.field}"
        return Obstacle(_VOLUME_REASON, f"{field} {fault.message}", field)
    return None


def _faults(mappings: Sequence[BlockDeviceMapping]) -> Iterator[tuple[int, _Fault]]:
    names: dict[str, int] = {}
    for number, mapping in enumerate(mappings):
        name = mapping.device_name
        if not name:
            yield number, _Fault("deviceName", "is missing: write a name such as /dev/xvda")
        elif names.setdefault(name, number) != number:
            other = f"spec.blockDeviceMappings[{names[name]}]"
            yield number, _Fault("deviceName", f"is {name}, as in {other}: give each volume its own name")
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
    least, most = limits.size
    if gibibytes is not None and not least <= gibibytes <= most:
        yield _Fault(
            "ebs.volumeSize", f"is {gibibytes:,} GiB, but {kind} volumes have {least:,} to {most:,} GiB"
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
    least, most = limits.iops
    if not least <= iops <= most:
        yield _Fault("ebs.iops", f"is {iops:,}, but {kind} volumes have {least:,} to {most:,}")
    elif gibibytes is not None and iops > max(least, gibibytes * limits.iops_per_gib):
        needed = -(-iops // limits.iops_per_gib)
        allowed = max(least, gibibytes * limits.iops_per_gib)
        yield _Fault(
            "ebs.iops",
            f"is {iops:,}, but {kind} volumes of {gibibytes:,} GiB have {allowed:,} at most "
            f"({limits.iops_per_gib:,} per GiB): lower it, or set volumeSize to {needed}Gi or more",
        )


def _throughput_faults(ebs: BlockDevice) -> Iterator[_Fault]:
    throughput, (least, most) = ebs.throughput, _THROUGHPUT
    if throughput is None:
        return
    if ebs.volume_type != "gp3":
        yield _Fault(
            "ebs.throughput", f"is {throughput:,}, but only gp3 volumes have it: leave it out, or use gp3"
        )
    elif not least <= throughput <= most:
        yield _Fault("ebs.throughput", f"is {throughput:,}, but gp3 volumes have {least:,} to {most:,} MiB/s")
    elif throughput * _IOPS_PER_MIB > (ebs.iops or _GP3_BASELINE_IOPS):
        iops = f"{ebs.iops:,}" if ebs.iops else f"{_GP3_BASELINE_IOPS:,} (the default)"
        yield _Fault(
            "ebs.throughput",
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
