"""What metrics read of a watched object. What measures must not break what watches: nothing here raises."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.observation.observed import UNREADABLE


def moment(obj: Mapping[str, Any], field: str) -> datetime | None:
    """Return a time of an object's metadata; None where there is none."""
    return time_of(obj.get("metadata") or {}, field)


def time_of(part: Mapping[str, Any], field: str) -> datetime | None:
    """Return a time that a part of an object holds; None where there is none that can be read."""
    try:
        return parse_time(part[field])
    except UNREADABLE:
        return None


def conditions_of(obj: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return an object's conditions; none where there is no object."""
    return list(((obj or {}).get("status") or {}).get("conditions") or ())


def is_true(obj: Mapping[str, Any] | None, kind: str) -> bool:
    """Return whether an object has a condition that is True."""
    return any(says_true(condition, kind) for condition in conditions_of(obj))


def says_true(condition: Mapping[str, Any], kind: str) -> bool:
    """Return whether a condition is of this type and True."""
    return condition.get("type") == kind and condition.get("status") == "True"
