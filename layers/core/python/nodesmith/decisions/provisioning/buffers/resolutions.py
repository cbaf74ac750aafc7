"""What CapacityBuffers ask for now, as planned pods of the lowest priority, and the status that they show.

The planned pods keep only firm rules of their template: room costs money, and kube-scheduler gives up preferences where
there is room.

Condition types and reasons are Karpenter's. Karpenter does not set LimitedByQuotas: here it says whether the caps on
planned pods leave a buffer less room than it asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from nodesmith.decisions.budgets import is_active, next_boundary
from nodesmith.decisions.provisioning.growth import Sizing
from nodesmith.decisions.provisioning.plan import Room
from nodesmith.decisions.scheduling.demands import shape_refusal
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ON_DEMAND
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.karpenter.capacitybuffers import (
    ACTIVE_CAPACITY,
    POD_TEMPLATE,
    SCALABLE_KINDS,
    STRATEGIES,
    CapacityBuffer,
    count_of,
    namespace_of,
    parse_buffers,
    within_limits,
)
from nodesmith.model.kubernetes.pods import LEAST_PRIORITY, Pod, PodTemplate, Shape, planned_pods
from nodesmith.model.snapshot import Snapshot

MOST_PODS = 1_000
"""The most planned pods of one buffer."""
MOST_PODS_OF_ALL = 3_000
"""The most planned pods of a cluster. The oldest buffers get theirs first."""
RESOLVED, RESOLUTION_FAILED = "Resolved", "ResolutionFailed"
POD_TEMPLATE_NOT_FOUND, SCALABLE_NOT_FOUND = "PodTemplateNotFound", "ScalableRefNotFound"


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a CapacityBuffer (namespace/name) asks for now: room for `count` pods like those of `template`.

    `wanted` is the number before the caps on planned pods. `reason` and `message` are those of its condition
    ReadyForProvisioning; `buffer` and `template` are None if they cannot be read or found.
    """

    key: str
    generation: int
    reason: str
    message: str
    buffer: CapacityBuffer | None = None
    template: PodTemplate | None = None
    wanted: int = 0
    count: int = 0
    sizing: Sizing | None = None
    """What the history of its workload says, if it is asked for and known in this run."""

    @property
    def is_ready(self) -> bool:
        """Whether its reference was resolved."""
        return self.reason == RESOLVED

    @property
    def is_warm(self) -> bool:
        """Whether its room is on stopped instances."""
        return self.buffer is not None and self.buffer.is_warm

    @staticmethod
    def gone(key: str) -> Resolution:
        """Return the resolution of a buffer of stopped instances that no longer exists: it asks for nothing."""
        return Resolution(key, 0, RESOLVED, "the buffer is gone")

    def pods(self, at_least: int = 0) -> list[Pod]:
        """Return the planned pods, and more for a count below `at_least`."""
        if self.buffer is None or self.template is None:
            return []
        shape = _without_preferences(self.template.shape)
        template = replace(self.template, shape=_on_demand(shape) if self.is_warm else shape)
        count = max(self.count, at_least)
        return planned_pods(template, self.buffer.owner, count, self.buffer.created_at, LEAST_PRIORITY)


def resolutions(
    snapshot: Snapshot, now: datetime, sizes: Mapping[str, Sizing] = MappingProxyType({})
) -> list[Resolution]:
    """Return what each CapacityBuffer that nodesmith serves asks for, the oldest first.

    `sizes` are those by history, by key; for buffers without one, their status shows it.
    """
    parsed = zip(snapshot.capacitybuffers, parse_buffers(snapshot.capacitybuffers), strict=True)
    resolved = []
    for manifest, read in parsed:
        if not _is_served(manifest):
            continue
        if read.value is None:
            resolved.append(_unreadable(manifest, str(read.fatal[0])))
        else:
            resolved.append(_resolved(read.value, snapshot, now, _sizing(read.value, manifest, sizes)))
    remaining, capped = MOST_PODS_OF_ALL, []
    for resolution in sorted(resolved, key=_by_age):
        count = min(resolution.wanted, MOST_PODS, remaining)
        remaining -= count
        capped.append(replace(resolution, count=count))
    return capped


def _is_served(manifest: Mapping[str, object]) -> bool:
    """Return whether a buffer is not being deleted and has a strategy that nodesmith serves."""
    spec, metadata = manifest.get("spec"), manifest.get("metadata")
    strategy = spec.get("provisioningStrategy") if isinstance(spec, Mapping) else None
    ends = isinstance(metadata, Mapping) and bool(metadata.get("deletionTimestamp"))
    return (strategy is None or strategy in STRATEGIES) and not ends


def _by_age(resolution: Resolution) -> tuple[float, str]:
    return resolution.buffer.created_at.timestamp() if resolution.buffer else 0.0, resolution.key


def _unreadable(manifest: Mapping[str, object], message: str) -> Resolution:
    metadata = manifest["metadata"]
    about = metadata if isinstance(metadata, Mapping) else {}
    key = f"{namespace_of(manifest)}/{about.get('name')}"
    generation = about.get("generation")
    return Resolution(key, generation if isinstance(generation, int) else 0, RESOLUTION_FAILED, message)


def _sizing(
    buffer: CapacityBuffer, manifest: Mapping[str, Any], sizes: Mapping[str, Sizing]
) -> Sizing | None:
    """Return the size of a buffer by history: the new one, or else the one that its status shows."""
    if buffer.key in sizes:
        return sizes[buffer.key]
    status = manifest.get("status") or {}
    condition = next((c for c in status.get("conditions") or () if c.get("type") == SIZED), None)
    if condition is None or (buffer.quantile and condition.get("observedGeneration", 0) != buffer.generation):
        return None
    if buffer.quantile is None:
        return Sizing(None, "it is not asked for")
    count, is_sized = status.get("replicas", 0), condition.get("status") == "True"
    is_number = isinstance(count, int) and count >= 0
    return Sizing(count if is_sized and is_number else None, str(condition.get("message", "")))


def _resolved(buffer: CapacityBuffer, snapshot: Snapshot, now: datetime, sizing: Sizing | None) -> Resolution:
    kind, _, name = buffer.reference.partition("/")
    template = snapshot.podtemplates.get(buffer.template_key)
    if template is None:
        reason = POD_TEMPLATE_NOT_FOUND if kind == POD_TEMPLATE else SCALABLE_NOT_FOUND
        message = f"there is no {kind} {name!r} in namespace {buffer.namespace}"
        if kind not in {POD_TEMPLATE, *SCALABLE_KINDS}:
            message = (
                f"nothing in namespace {buffer.namespace} is controlled by {kind} {name!r}: its pods, or one of"
                f" {', '.join(SCALABLE_KINDS)} that creates them, must name it as controller in ownerReferences;"
                " use a podTemplateRef for an object without pods"
            )
        return Resolution(buffer.key, buffer.generation, reason, message, buffer)
    if refusal := shape_refusal(template.shape):
        message = f"no node can be bought for pods of {buffer.reference}: {refusal}"
        return Resolution(buffer.key, buffer.generation, RESOLUTION_FAILED, message, buffer)
    is_open = buffer.window is None or is_active(buffer.window, now)
    count = count_of(buffer, template)
    if sizing is not None and sizing.count is not None:
        count = within_limits(sizing.count, buffer, template)
    message = "" if is_open else "the buffer keeps no room outside its schedule"
    about = (buffer.key, buffer.generation, RESOLVED, message, buffer, template)
    return Resolution(*about, count if is_open else 0, sizing=sizing)


def _without_preferences(shape: Shape) -> Shape:
    """Return a shape without preferences and annotations."""
    return replace(
        shape,
        spreads=tuple(spread for spread in shape.spreads if spread.hard),
        affinities=tuple(term for term in shape.affinities if not term.weight),
        preferred_terms=(),
        annotations={},
    )


_ON_DEMAND = Requirements.of(requirement(CAPACITY_TYPE, "In", [ON_DEMAND]))


def _on_demand(shape: Shape) -> Shape:
    """Return a shape that only on-demand instances hold: EC2 stops no others at a customer's request."""
    terms, own_terms = (
        tuple(term.union(_ON_DEMAND) for term in group) for group in (shape.terms, shape.own_terms)
    )
    return replace(shape, terms=terms, own_terms=own_terms)


def next_window(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return when the next window of a buffer's schedule begins or ends, None if no buffer has one."""
    windows = [result.value.window for result in parse_buffers(snapshot.capacitybuffers) if result.value]
    return next_boundary((window for window in windows if window is not None), now)


READY, PROVISIONING, LIMITED = "ReadyForProvisioning", "Provisioning", "LimitedByQuotas"
SIZED = "SizedFromHistory"
"""Whether the history of its workload sizes a buffer. While it is True, `status.replicas` is the size."""
_COMPARED = ("status", "reason", "message", "observedGeneration")


def due_statuses(
    snapshot: Snapshot,
    rooms: Mapping[str, Room],
    now: datetime,
    sizes: Mapping[str, Sizing] = MappingProxyType({}),
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield key (namespace/name) and status of each CapacityBuffer that does not show it.

    `rooms` are those of the last decision, by key, `sizes` as in `resolutions`.
    """
    statuses = {
        f"{namespace_of(m)}/{m['metadata']['name']}": m.get("status") or {} for m in snapshot.capacitybuffers
    }
    for resolution in resolutions(snapshot, now, sizes):
        status = status_of(resolution, rooms.get(resolution.key))
        if not _is_shown(statuses.get(resolution.key, {}), status):
            yield resolution.key, status


def status_of(resolution: Resolution, room: Room | None) -> dict[str, Any]:
    """Return a buffer's status. Without a room that fits the buffer, Provisioning is left as it is."""
    strategy = resolution.buffer.strategy if resolution.buffer is not None else ACTIVE_CAPACITY
    status: dict[str, Any] = {"provisioningStrategy": strategy, "replicas": resolution.count}
    if resolution.template is not None:
        status["podTemplateGeneration"] = resolution.template.generation
        if resolution.template.kind == POD_TEMPLATE:
            status["podTemplateRef"] = {"name": resolution.template.name}
    conditions = [
        _condition(READY, resolution.is_ready, resolution.reason, resolution.message, resolution),
        *_provisioning(resolution, room),
        _limited(resolution),
        *_sized(resolution),
    ]
    return {**status, "conditions": conditions}


def _provisioning(resolution: Resolution, room: Room | None) -> list[dict[str, Any]]:
    if not resolution.is_ready:
        return [_condition(PROVISIONING, False, "NotReadyForProvisioning", resolution.message, resolution)]
    if not resolution.count:
        message = resolution.message or "the buffer asks for no room"
        return [_condition(PROVISIONING, False, "BufferEmpty", message, resolution)]
    if room is None or room.count != resolution.count:
        return []
    if resolution.is_warm:
        return [_warm(resolution, room)]
    if room.ready == room.count:
        message = f"there is room for all {room.count} pods"
        return [_condition(PROVISIONING, True, "FitsExistingCapacity", message, resolution)]
    message = f"there is room for {room.ready} of {room.count} pods"
    if room.launching + room.bought:
        message += f", and nodes for {room.launching + room.bought} are being launched"
    message += f"; {room.reason}" if room.reason else ""
    return [_condition(PROVISIONING, False, "RequiresNewCapacity", message, resolution)]


def _warm(resolution: Resolution, room: Room) -> dict[str, Any]:
    """Return Provisioning of a buffer of stopped instances, in words of its own: its room is not on nodes."""
    is_full = room.ready == room.count
    instances = f"{room.stopped} stopped instances" if room.stopped != 1 else "1 stopped instance"
    message = f"{instances} for {room.ready} of {room.count} pods"
    message += f"; {room.warming} being prepared" if room.warming else ""
    message += f"; more are bought for {room.bought} pods" if room.bought else ""
    message += f"; {room.reason}" if room.reason else ""
    return _condition(
        PROVISIONING, is_full, "WarmCapacityReady" if is_full else "WarmingUp", message, resolution
    )


def _sized(resolution: Resolution) -> list[dict[str, Any]]:
    if resolution.sizing is None:
        is_asked = resolution.buffer is not None and resolution.buffer.quantile is not None
        message = "nothing is recorded yet: replicas and percentage count until then"
        return [_condition(SIZED, False, "TooLittleHistory", message, resolution)] if is_asked else []
    if resolution.sizing.count is None:
        is_asked = resolution.buffer is not None and resolution.buffer.quantile is not None
        reason = "TooLittleHistory" if is_asked else "NotAsked"
        return [_condition(SIZED, False, reason, resolution.sizing.message, resolution)]
    return [_condition(SIZED, True, "Quantile", resolution.sizing.message, resolution)]


def _limited(resolution: Resolution) -> dict[str, Any]:
    if resolution.count == resolution.wanted:
        return _condition(LIMITED, False, "NotLimited", "", resolution)
    message = (
        f"the buffer asks for room for {resolution.wanted} pods and gets it for {resolution.count}: at most"
        f" {MOST_PODS} pods a buffer and {MOST_PODS_OF_ALL} a cluster have room, the oldest buffers first"
    )
    return _condition(LIMITED, True, "PlannedPodsCapped", message, resolution)


def _condition(kind: str, status: bool, reason: str, message: str, resolution: Resolution) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": resolution.generation,
    }


def _is_shown(current: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    conditions = {condition.get("type"): condition for condition in current.get("conditions") or ()}
    is_shown = all(
        (conditions.get(condition["type"]) or {}).get(field, _absent(field)) == condition[field]
        for condition in expected["conditions"]
        for field in _COMPARED
    )
    return is_shown and all(current.get(name) == expected[name] for name in expected if name != "conditions")


def _absent(field: str) -> object:
    """Return what a missing field of a condition means. Reduced objects leave out empty values."""
    return 0 if field == "observedGeneration" else ""
