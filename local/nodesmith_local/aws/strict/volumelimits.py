"""Amazon EBS's limits on the volumes of a launch template, by volume type.

Sources: EbsBlockDevice in EC2's API model; Amazon EBS volume types, EBS User Guide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.refusals import Refusal, require

_GP3 = {"VolumeSize": limits.GP3_SIZE, "Iops": limits.GP3_IOPS, "Throughput": limits.GP3_THROUGHPUT}
_GIB = {
    "gp2": range(1, 16_385),
    "gp3": range(1, 65_537),
    "io1": range(4, 16_385),
    "io2": range(4, 65_537),
    "sc1": range(125, 16_385),
    "st1": range(125, 16_385),
    "standard": range(1, 1025),
}
_IOPS = {"gp3": range(3000, 80_001), "io1": range(100, 64_001), "io2": range(100, 256_001)}
_IOPS_PER_GIB = {"gp3": 500, "io1": 50, "io2": 1000}
_MIB_PER_1000_IOPS = 250
_VALUE, _COMBINATION = "InvalidParameterValue", "InvalidParameterCombination"


def check_volumes(mappings: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refusal for block device mappings that EBS does not offer, or of which two have one name."""
    names = [str(mapping.get("DeviceName", "")) for mapping in mappings]
    if len(set(names)) < len(names):
        raise Refusal("InvalidBlockDeviceMapping", f"Duplicate device name in {sorted(names)}.")
    for mapping in mappings:
        volume = mapping.get("Ebs") or {}
        if any(int(volume.get(name, 1)) < 1 for name in ("Iops", "Throughput")):
            raise Refusal(_VALUE, "Iops and throughput must be positive.")
        if volume.get("VolumeType") in _GIB:
            _check(volume)


def _check(volume: Mapping[str, Any]) -> None:
    kind = volume["VolumeType"]
    size, iops, throughput = (
        None if volume.get(name) is None else int(volume[name])
        for name in ("VolumeSize", "Iops", "Throughput")
    )
    for name, limit in _GP3.items() if kind == "gp3" else ():
        if volume.get(name) is not None:
            require(limit, int(volume[name]), f"{name} of a gp3 volume")
    if size is not None and size not in _GIB[kind]:
        raise Refusal(_VALUE, f"Volume of size {size}GB is invalid for volume type {kind}.")
    if iops is None and kind in {"io1", "io2"}:
        raise Refusal("MissingParameter", f"The parameter iops is required for {kind} volumes.")
    if iops is not None:
        _check_iops(kind, size, iops)
    if throughput is None:
        return
    if kind != "gp3":
        raise Refusal(_COMBINATION, f"The parameter throughput is not supported for {kind} volumes.")
    if throughput * 1000 > (iops or 3000) * _MIB_PER_1000_IOPS:
        raise Refusal(_VALUE, f"Throughput to iops ratio of {throughput}/{iops or 3000} is too high.")


def _check_iops(kind: str, size: int | None, iops: int) -> None:
    if kind not in _IOPS:
        raise Refusal(_COMBINATION, f"The parameter iops is not supported for {kind} volumes.")
    if iops not in _IOPS[kind]:
        raise Refusal(_VALUE, f"Iops {iops} is invalid for volume type {kind}.")
    # The least that a volume has, 3,000 IOPS of gp3 and 100 of the others, is there at any size.
    if size is not None and iops > max(_IOPS[kind].start, size * _IOPS_PER_GIB[kind]):
        raise Refusal(_VALUE, f"Iops to volume size ratio of {iops}/{size} is too high for {kind}.")
