"""Devices, claims to them and NodeOverlays that declare them, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodesmith.model.kubernetes.devices import (
    ClusterDevices,
    DeviceKind,
    DevicePool,
    amount_of,
    parse_devices,
    parse_kind,
)
from tests.objects.nodeoverlays import family, overlay

DRIVER = "gpu.example.com"
GPU = {DRIVER: ("device.driver == 'gpu.example.com'",)}
"""A DeviceClass of all GPUs."""


def model(name: str) -> str:
    """Return a selector of the GPUs of a model."""
    return f'device.attributes["{DRIVER}"].model == "{name}"'


def kind(model: str = "a100", driver: str = DRIVER, **attributes: Any) -> DeviceKind:
    """Return a kind of devices with 40 GiB of memory."""
    return parse_kind(
        {"driver": driver, "attributes": {"model": model, **attributes}, "capacity": {"memory": "40Gi"}}
    )


def request(
    count: int = 1, *selectors: str, name: str = "gpu", device_class: str = DRIVER, **also: Any
) -> dict[str, Any]:
    """Return a request of a claim as snapshots have it, with one alternative."""
    want = {"name": "", "class": device_class, "selectors": list(selectors), "count": count}
    return {"name": name, "wants": [want], **also}


def part(amount: str, count: int = 1, name: str = "gpu") -> dict[str, Any]:
    """Return a request for devices that give so much of their memory."""
    made = request(count, name=name)
    made["wants"][0]["capacity"] = {"memory": amount_of(amount)}
    return made


def shared(memory: str = "80Gi", **policy: Any) -> dict[str, Any]:
    """Return an entry of the annotation that declares a device whose memory claims share."""
    capacity = {"memory": {"value": memory, "requestPolicy": policy} if policy else memory}
    return {"driver": DRIVER, "allowMultipleAllocations": True, "capacity": capacity}


def parted(count: int = 1, **also: Any) -> dict[str, Any]:
    """Return an entry of the annotation: GPUs of 80 GiB and 7 slices, whole, in two large or seven small parts."""
    parts = [
        {"attributes": {"profile": "whole"}, "consumes": {"memory": "80Gi", "slices": "7"}},
        {"count": 2, "attributes": {"profile": "large"}, "consumes": {"memory": "40Gi", "slices": "3"}},
        {"count": 7, "attributes": {"profile": "small"}, "consumes": {"memory": "10Gi", "slices": "1"}},
    ]
    counters = {"memory": "80Gi", "slices": "7"}
    return {"driver": DRIVER, "count": count, "counters": counters, "partitions": parts, **also}


def profile(name: str) -> str:
    """Return a selector of the partitions of a profile."""
    return f'device.attributes["{DRIVER}"].profile == "{name}"'


def first_of(*requests: Mapping[str, Any], name: str = "gpu") -> dict[str, Any]:
    """Return a request for the first of these that can be met."""
    wants = [{**each["wants"][0], "name": f"choice-{number}"} for number, each in enumerate(requests)]
    return {"name": name, "wants": wants}


def claims(*requests: Mapping[str, Any], alike: Sequence[str] = (), **fields: Any) -> list[dict[str, Any]]:
    """Return the only claim of a pod as snapshots have it; `alike` are attributes that must be the same."""
    constraints = [{"requests": [], "attribute": each} for each in alike]
    return [{"name": "devices", "requests": list(requests), "constraints": constraints, **fields}]


def published(node: str, *stock: tuple[DeviceKind, int, int], **fields: Any) -> DevicePool:
    """Return the pool of a node: kinds, each with how many there are and how many are free."""
    return DevicePool(DRIVER, node, node, stock=stock, **fields)


def cluster(*pools: DevicePool, classes: Mapping[str, Sequence[str]] = GPU) -> ClusterDevices:
    """Return the devices of a cluster."""
    found = parse_devices({"kinds": [], "pools": [], "classes": dict(classes)})
    return ClusterDevices(found.classes, pools)


def declaring(
    entries: Iterable[Mapping[str, Any]], *families: str, name: str = "devices", **spec: Any
) -> dict[str, Any]:
    """Return a NodeOverlay that declares devices of the types of some families."""
    made = overlay(name, family(*families), **spec)
    made["metadata"]["annotations"] = {"nodesmith.dev/devices": json.dumps(list(entries))}
    return made


def gpus(count: int, model: str = "a100", **attributes: Any) -> dict[str, Any]:
    """Return an entry of the annotation that declares devices."""
    return {
        "driver": DRIVER,
        "count": count,
        "attributes": {"model": model, **attributes},
        "capacity": {"memory": "40Gi"},
    }
