"""How a manifest has changed, apart from what nodesmith writes itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.observation.mirror import NODEPOOLS, Change


def is_of_others(change: Change) -> bool:
    """Return whether the change concerns a NodePool that belongs to another controller, before and after."""
    states = [state for state in (change.before, change.after) if state is not None]
    return change.kind == NODEPOOLS and all(map(is_foreign, states))


def is_wanted_otherwise(change: Change) -> bool:
    """Return whether more than the status has changed; nodesmith itself writes the status of Karpenter's objects."""
    return _without_status(change.before) != _without_status(change.after)


def conditions(manifest: Mapping[str, Any] | None) -> Any:
    """Return the conditions of an object, or None if the object or its conditions are missing."""
    return ((manifest or {}).get("status") or {}).get("conditions")


def _without_status(manifest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return manifest and {part: value for part, value in manifest.items() if part != "status"}
