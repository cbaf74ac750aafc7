"""What metrics read from watched objects. Nothing here raises, so that metrics cannot break the watches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.observation.observed import UNREADABLE


def moment(obj: Mapping[str, Any], field: str) -> datetime | None:
    """Return a time from an object's metadata, or None if there is none."""
    return time_of(obj.get("metadata") or {}, field)


def time_of(part: Mapping[str, Any], field: str) -> datetime | None:
    """Return a time from a part of an object, or None if it is missing or unreadable."""
    try:
        return parse_time(part[field])
    except UNREADABLE:
        return None


def conditions_of(obj: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return an object's conditions; empty if there is no object."""
    return list(((obj or {}).get("status") or {}).get("conditions") or ())


def is_true(obj: Mapping[str, Any] | None, kind: str) -> bool:
    """Return whether an object has a condition that is True."""
    return any(says_true(condition, kind) for condition in conditions_of(obj))


def says_true(condition: Mapping[str, Any], kind: str) -> bool:
    """Return whether a condition has this type and is True."""
    return condition.get("type") == kind and condition.get("status") == "True"
