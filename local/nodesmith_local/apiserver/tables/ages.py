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
    whole_seconds = int(seconds)
    if whole_seconds < 0:
        return "0s" if whole_seconds >= -1 else "<invalid>"
    if whole_seconds < 2 * _MINUTE:
        return f"{whole_seconds}s"
    if whole_seconds < 10 * _MINUTE:
        return _two(whole_seconds, _MINUTE, "m", 1, "s")
    if whole_seconds < 3 * _HOUR:
        return f"{whole_seconds // _MINUTE}m"
    if whole_seconds < 8 * _HOUR:
        return _two(whole_seconds, _HOUR, "h", _MINUTE, "m")
    if whole_seconds < 2 * _DAY:
        return f"{whole_seconds // _HOUR}h"
    if whole_seconds < 8 * _DAY:
        return _two(whole_seconds, _DAY, "d", _HOUR, "h")
    if whole_seconds < 2 * _YEAR:
        return f"{whole_seconds // _DAY}d"
    return (
        _two(whole_seconds, _YEAR, "y", _DAY, "d")
        if whole_seconds < 8 * _YEAR
        else f"{whole_seconds // _YEAR}y"
    )


def _two(seconds: int, large: int, large_name: str, small: int, small_name: str) -> str:
    remainder = seconds % large // small
    return f"{seconds // large}{large_name}" + (f"{remainder}{small_name}" if remainder else "")
