"""Durations as kubectl shows them: two units while small, one when large."""

from __future__ import annotations

from datetime import datetime

from nodesmith_formats.kubernetes.objects import parse_timestamp

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
UNKNOWN = "<unknown>"


def age(since: object, now: datetime) -> str:
    """Return the time that has passed since the timestamp `since`, as kubectl shows it."""
    moment = parse_timestamp(since)
    return span((now - moment).total_seconds()) if moment else UNKNOWN


def span(seconds: float) -> str:
    """Format a duration: 90 → `90s`, 150 → `2m30s`, 7200 → `120m`, 200000 → `2d7h`."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    return _two(whole, _YEAR, "y", _DAY, "d") if whole < 8 * _YEAR else f"{whole // _YEAR}y"


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_name}" + (f"{rest}{small_name}" if rest else "")
