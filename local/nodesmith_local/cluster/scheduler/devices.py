"""Devices: which nodes can give a pod's ResourceClaims theirs, and their allocation when the pod is bound.

The allocator is nodesmith's, with one row for each device. Property tests judge it, and kube-scheduler on the real
control plane does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nodesmith.decisions.scheduling.devices.allocation import Allocator, Matcher
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.kubernetes.devices import DeviceKind, PodClaim, parse_claim, parse_kind
from nodesmith.observation.reduction.devices import (
    Device,
    ReducedDeviceClaim,
    ReducedSlice,
    reduce_device_claim,
    reduce_slice,
)
from nodesmith_formats.kubernetes.objects import Object, View, dig, name_of, namespace_of
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.deviceclaims import CLAIMS, claim_names
from nodesmith_local.cluster.podfacts import term_matches
from nodesmith_local.cluster.scheduler.filters import Filter
from nodesmith_local.cluster.scheduler.podcounts import NodeRoom

DEVICE_CLASSES, SLICES = "deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io"
_CANNOT = "cannot allocate all claims"


def device_reason(pod: View, store: Store) -> str:
    """Return why a pod's claims rule out every node, or "" if they do not."""
    for reference, name in zip(pod["spec"].get("resourceClaims") or (), claim_names(pod), strict=True):
        if not name:
            return f'waiting for the ResourceClaim of pod claim "{reference["name"]}" to be made'
        claim = store.find(CLAIMS, name, namespace_of(pod))
        if claim is None:
            return f'resourceclaim "{name}" not found'
        if not dig(claim, "status", "allocation") and (problem := _read(claim)[1].problem):
            return f'resourceclaim "{name}": {problem}'
    return ""


def device_filters(pod: View, store: Store) -> Iterator[Filter]:
    """Yield the filter of a pod with claims: the node has their devices, or can give them."""
    if not pod["spec"].get("resourceClaims"):
        return
    device_state = _Devices(store)

    def reason(room: NodeRoom) -> str:
        return "" if device_state.allocations(pod, room.node) is not None else _CANNOT

    yield reason


def reserve(pod: View, store: Store, node: View) -> bool:
    """Allocate and reserve the claims of a pod that is about to be bound; return False if that is not possible now."""
    if not pod["spec"].get("resourceClaims"):
        return True
    allocations = _Devices(store).allocations(pod, node)
    if allocations is None:
        return False
    user = {"resource": "pods", "name": name_of(pod), "uid": pod["metadata"]["uid"]}
    for name, allocation in allocations.items():
        claim = store.get(CLAIMS, name, namespace_of(pod))
        users = [
            consumer
            for consumer in dig(claim, "status", "reservedFor") or ()
            if consumer["uid"] != user["uid"]
        ]
        status = {"allocation": allocation, "reservedFor": [*users, user]}
        store.patch(CLAIMS, name, {"status": status}, namespace_of(pod), subresource="status")
    return True


class _Devices:
    """The current devices of a cluster, and their allocations to claims."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: set[Device] = set()
        self._used: dict[Device, dict[str, int]] = {}
        for claim in store.list(CLAIMS):
            reduced, _ = _read(claim)
            self._taken.update(reduced.devices)
            for device, name, amount in reduced.consumed:
                used = self._used.setdefault(device, {})
                used[name] = used.get(name, 0) + amount
        classes = {
            name_of(device_class): [
                str(s["cel"]["expression"]) for s in dig(device_class, "spec", "selectors") or ()
            ]
            for device_class in store.list(DEVICE_CLASSES)
        }
        self._matcher = Matcher(classes)
        self._pools: dict[tuple[str, str], list[tuple[View, ReducedSlice]]] = {}
        for manifest in store.list(SLICES):
            read = reduce_slice(manifest)
            self._pools.setdefault((read.driver, read.pool), []).append((manifest, read))

    def allocations(self, pod: View, node: View) -> dict[str, Object] | None:
        """Return the allocation of each claim of a pod on a node, by name; None if it cannot run there."""
        allocated_claims: dict[str, Object] = {}
        opened: list[tuple[str, PodClaim]] = []
        for name in claim_names(pod):
            claim = self._store.find(CLAIMS, name, namespace_of(pod))
            if claim is None:
                return None
            allocation = dig(claim, "status", "allocation")
            if allocation and not _reaches(allocation.get("nodeSelector"), node):
                return None
            if allocation:
                allocated_claims[name] = dict(allocation)
            elif name not in dict(opened):
                opened.append((name, _read(claim)[1]))
        rows = list(self._rows(node))
        allocator = Allocator(tuple((kind, 1, int(is_free)) for _, kind, is_free in rows), self._matcher)
        if opened and not allocator.allocate([claim for _, claim in opened]):
            return None
        results: dict[str, list[Object]] = {name: [] for name, _ in opened}
        for allocated_device in allocator.taken:
            (driver, pool, device), _, _ = rows[allocated_device.row]
            request = (
                f"{allocated_device.request}/{allocated_device.want}"
                if allocated_device.want
                else allocated_device.request
            )
            result: Object = {"request": request, "driver": driver, "pool": pool, "device": device}
            if allocated_device.consumed:
                result["consumedCapacity"] = {
                    name: _quantity(a) for name, a in allocated_device.consumed.items()
                }
            results[opened[allocated_device.claim][0]].append(result)
        return allocated_claims | {
            name: _allocation(allocated, name_of(node)) for name, allocated in results.items()
        }

    def _rows(self, node: View) -> Iterator[tuple[Device, DeviceKind, bool]]:
        """Yield the devices that a node reaches, each with whether it is free."""
        for (driver, pool), slices in sorted(self._pools.items()):
            newest = max(read.generation for _, read in slices)
            current = [slice_ for slice_ in slices if slice_[1].generation == newest]
            if len(current) != current[0][1].total:
                continue
            counters = self._counters(driver, pool, [read for _, read in current])
            for manifest, read in current:
                if not _is_near(manifest["spec"], node):
                    continue
                for listed_device in read.devices:
                    kind, device = (
                        parse_kind(json.loads(listed_device.text)),
                        (driver, pool, listed_device.name),
                    )
                    if not listed_device.why_not and kind.consumes.keys() <= counters.keys():
                        yield device, self._with_state(kind, device, counters), self._is_free(kind, device)

    def _is_free(self, kind: DeviceKind, device: Device) -> bool:
        return kind.is_shared or device not in self._taken

    def _with_state(
        self, kind: DeviceKind, device: Device, counters: Mapping[str, tuple[int, int]]
    ) -> DeviceKind:
        prefix = f"{device[0]}/{device[1]}/"
        return replace(
            kind,
            consumes=FrozenMap({prefix + name: amount for name, amount in kind.consumes.items()}),
            counters=FrozenMap({prefix + name: counters[name] for name in kind.consumes}),
            used=FrozenMap(self._used.get(device, {})),
        )

    def _counters(self, driver: str, pool: str, slices: Iterable[ReducedSlice]) -> dict[str, tuple[int, int]]:
        slices = list(slices)
        totals = {name: amount for slice_ in slices for name, amount in slice_.counters}
        remaining = dict(totals)
        for device in (device for slice_ in slices for device in slice_.devices):
            if (driver, pool, device.name) in self._taken:
                for name, amount in json.loads(device.text).get("consumes", {}).items():
                    remaining[name] = remaining.get(name, 0) - amount
        return {name: (remaining[name], total) for name, total in totals.items()}


def _read(claim: View) -> tuple[ReducedDeviceClaim, PodClaim]:
    reduced = reduce_device_claim(claim)
    return reduced, parse_claim({"name": reduced.name, **json.loads(reduced.text)})


def _is_near(spec: View, node: View) -> bool:
    if spec.get("nodeName"):
        return bool(spec["nodeName"] == name_of(node))
    return bool(spec.get("allNodes")) or _reaches(spec.get("nodeSelector"), node, otherwise=False)


def _reaches(selector: View | None, node: View, *, otherwise: bool = True) -> bool:
    terms = (selector or {}).get("nodeSelectorTerms")
    return otherwise if terms is None else any(term_matches(term, node) for term in terms)


def _allocation(results: list[Object], node: str) -> Object:
    field: Any = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def _quantity(amount: int) -> str:
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
