"""What has become of a manifest, apart from our own handwriting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.observation.mirror import NODEPOOLS, Change


def is_of_others(change: Change) -> bool:
    """Whether a change is of a NodePool that other software serves, before and after it."""
    states = [state for state in (change.before, change.after) if state is not None]
    return change.kind == NODEPOOLS and all(map(is_foreign, states))


def is_wanted_otherwise(change: Change) -> bool:
    """Return whether more than the status has changed; of Karpenter's objects that is our own handwriting."""
    return _without_status(change.before) != _without_status(change.after)


def conditions(manifest: Mapping[str, Any] | None) -> Any:
    """Return the conditions of an object, None where it or they are not there."""
    return ((manifest or {}).get("status") or {}).get("conditions")


def _without_status(manifest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return manifest and {part: value for part, value in manifest.items() if part != "status"}
