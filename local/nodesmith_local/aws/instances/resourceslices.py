"""The ResourceSlices that a DRA driver writes for the devices of a node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nodesmith.model.kubernetes.devices import DeviceKind
from nodesmith_formats.kubernetes.objects import Object, View, name_of

Devices = Sequence[tuple[DeviceKind, int]]
_MOST_IN_SLICE = 64
"""Kubernetes' limit for devices with counters."""


def resource_slices(node: View, driver: str, devices: Devices) -> Iterator[Object]:
    """Yield a node's ResourceSlices for a driver: its counters, if there are any, and its devices."""
    device_objects = [
        _device(kind, f"device-{row}-{number}")
        for row, (kind, count) in enumerate(devices)
        for number in range(count)
    ]
    counters = {name: total for kind, _ in devices for name, (_, total) in kind.counters.items()}
    parts: list[Object] = [{"sharedCounters": _sets(counters, "name")}] if counters else []
    parts += [
        {"devices": device_objects[start : start + _MOST_IN_SLICE]}
        for start in range(0, len(device_objects), _MOST_IN_SLICE)
    ]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name_of(node), "uid": node["metadata"]["uid"]}
    pool = {"name": name_of(node), "generation": 1, "resourceSliceCount": len(parts)}
    for number, part in enumerate(parts):
        name = f"{name_of(node)}-{driver}-{number}"
        spec = {"driver": driver, "nodeName": name_of(node), "pool": pool, **part}
        yield {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}


def _device(kind: DeviceKind, name: str) -> Object:
    capacity: dict[str, Any] = {dimension: {"value": text} for dimension, text in kind.capacity.items()}
    for dimension, policy in kind.policies.items():
        capacity[dimension]["requestPolicy"] = json.loads(policy)
    device: Object = {"name": name, "attributes": {n: dict(v) for n, v in kind.attributes.items()}}
    if kind.is_shared:
        device["allowMultipleAllocations"] = True
    if kind.consumes:
        device["consumesCounters"] = _sets(dict(kind.consumes), "counterSet")
    return {**device, "capacity": capacity}


def _sets(amounts: dict[str, int], key: str) -> list[Object]:
    """Return amounts by counter (`driver/entry/device/counter`) as counter sets, one for each device."""
    counter_sets: dict[str, dict[str, Any]] = {}
    for name, amount in sorted(amounts.items()):
        device, _, counter = name.rpartition("/")
        _, entry, number = device.rsplit("/", 2)
        counters = counter_sets.setdefault(f"set-{entry.strip('[]')}-{number}", {})
        counters[counter] = {"value": f"{amount}m" if amount % 1000 else str(amount // 1000)}
    return [{key: name, "counters": counters} for name, counters in counter_sets.items()]
