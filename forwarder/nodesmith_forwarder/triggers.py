"""Whom a change concerns. Everything that changed must be in the snapshot; only some of it wakes anybody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith.model.events import Concern
from nodesmith.observation.mirror import NODECLAIMS, NODECLASSES, NODEPOOLS, NODES, PODS, Change
from nodesmith_forwarder.windows import Topic


def triggered(change: Change) -> Iterator[tuple[Topic, str]]:
    """Give the topics of a change, each with the key that counts once in its window.

    What a NodePool or EC2NodeClass has become may be what a pending pod was waiting for, so provisioning looks too.
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


def _is_wanted_otherwise(change: Change) -> bool:
    """Tell whether more than the status has changed, which is our own handwriting."""
    return _without_status(change.before) != _without_status(change.after)


def _without_status(manifest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return manifest and {part: value for part, value in manifest.items() if part != "status"}


def _conditions(manifest: Mapping[str, Any] | None) -> Any:
    return ((manifest or {}).get("status") or {}).get("conditions")
