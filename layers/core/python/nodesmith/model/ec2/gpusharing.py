"""GPUs that a device plugin offers in parts: by time slicing or MPS, or as MIG instances with names of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.ec2.instancetypes import InstanceType

GPU = "nvidia.com/gpu"
_MOST = 128
_PART = re.compile(r"(nvidia\.com/[a-z0-9](?:[\w.-]{0,61}[a-z0-9])?)=([1-9]\d{0,2})", re.ASCII)
GpuParts = tuple[tuple[str, int], ...]
"""What the device plugin offers for each GPU: names of resources, with their numbers."""


def read_gpu_parts(text: str) -> GpuParts | None:
    """Read `nvidia.com/mig-1g.10gb=5,nvidia.com/mig-2g.20gb=1`; None if it is malformed or names a resource twice."""
    found = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    parts = [(match[1], int(match[2])) for match in found if match and int(match[2]) <= _MOST]
    if len(parts) < len(found) or len({name for name, _ in parts}) < len(parts):
        return None
    return tuple(sorted(parts))


def with_parts(kind: InstanceType, parts: GpuParts) -> InstanceType:
    """Return the type with these resources for each of its GPUs instead of whole GPUs."""
    gpus = kind.capacity.of(GPU)
    if not gpus or not parts:
        return kind

    def offered(resources: Resources) -> Resources:
        others = {name: amount for name, amount in resources.items() if name != GPU}
        return Resources({**others, **{name: number * gpus for name, number in parts}})

    return replace(kind, capacity=offered(kind.capacity), allocatable=offered(kind.allocatable))


def all_with_parts(types: tuple[InstanceType, ...], parts: GpuParts) -> tuple[InstanceType, ...]:
    """Return types with these resources for each GPU. Cached: equal arguments give the same objects."""
    return _all_with_parts(types, parts) if parts else types


@lru_cache(maxsize=16)
def _all_with_parts(types: Iterable[InstanceType], parts: GpuParts) -> tuple[InstanceType, ...]:
    return tuple(with_parts(kind, parts) for kind in types)
