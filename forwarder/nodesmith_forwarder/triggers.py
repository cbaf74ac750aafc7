"""Whom a change concerns. Everything that changed must be in the snapshot; only some of it wakes anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodesmith.model.events import Concern
from nodesmith.observation.mirror import (
    NAMESPACES,
    NODECLAIMS,
    NODECLASSES,
    NODEPOOLS,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Change,
)
from nodesmith_forwarder.windows import Topic


def triggered(change: Change, is_awaited: Callable[[str], bool]) -> Iterator[tuple[Topic, str]]:
    """Give the topics of a change, each with the key that counts once in its window.

    What a NodePool, an EC2NodeClass, a volume or a namespace's labels have become may be what a pending pod was waiting
    for, so provisioning looks too; a new namespace is empty, and its pods speak for themselves. `is_awaited` tells
    whether a pod waits for a claim (namespace/name).
    """
    key = f"{change.kind.kind}/{change.key}"
    yield None, key
    if change.kind == PODS and change.after is not None and change.after.is_provisionable:
        yield Concern.PROVISIONING, change.after.uid
    elif change.kind == NODES or (change.kind == NODECLAIMS and _is_wanted_otherwise(change)):
        yield Concern.LIFECYCLE, key
    elif change.kind in (NODEPOOLS, NODECLASSES):
        if _is_wanted_otherwise(change):
            yield Concern.READINESS, key
        if _is_wanted_otherwise(change) or _conditions(change.before) != _conditions(change.after):
            yield Concern.PROVISIONING, key
    elif _is_relabelled(change) or (change.after is not None and _is_awaited_volume(change, is_awaited)):
        yield Concern.PROVISIONING, key


def _is_relabelled(change: Change) -> bool:
    return change.kind == NAMESPACES and None not in (change.before, change.after)


def _is_awaited_volume(change: Change, is_awaited: Callable[[str], bool]) -> bool:
    if change.kind == VOLUME_CLAIMS:
        return is_awaited(change.key)
    if change.kind == VOLUMES:
        return is_awaited(change.after.claim) if change.after.claim else change.after.offers is not None
    return change.kind == STORAGE_CLASSES


def _is_wanted_otherwise(change: Change) -> bool:
    """Tell whether more than the status has changed, which is our own handwriting."""
    return _without_status(change.before) != _without_status(change.after)


def _without_status(manifest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return manifest and {part: value for part, value in manifest.items() if part != "status"}


def _conditions(manifest: Mapping[str, Any] | None) -> Any:
    return ((manifest or {}).get("status") or {}).get("conditions")
