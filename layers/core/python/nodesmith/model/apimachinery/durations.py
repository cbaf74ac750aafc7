"""Durations in manifests: `720h`, `1h30m`, `Never`, and those of the kubelet, such as `1.5s`."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"([0-9]+)([smh])", re.ASCII)
NEVER = "Never"
LONGEST_SECONDS = (2**63 - 1) // 10**9
"""The longest duration that Kubernetes can represent in nanoseconds: 292 years. Longer ones are cut to it."""
_MOST_DIGITS = 10
_GO_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_GO_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6} | {
    unit: seconds * 10**9 for unit, seconds in _UNIT_SECONDS.items()
}
_MOST_NANOSECONDS = 2**63 - 1
_MOST_GO_DIGITS = 19


def duration_seconds(text: str | None) -> int | None:
    """Return the length of `text` in seconds; None for `Never` and for None.

    Expects text that has passed its field's pattern. Anything between the parts is ignored.
    """
    if text is None or text == NEVER:
        return None
    parts = ((number.lstrip("0") or "0", _UNIT_SECONDS[unit]) for number, unit in _PART.findall(text))
    seconds = (int(n) * unit if len(n) <= _MOST_DIGITS else LONGEST_SECONDS for n, unit in parts)
    return min(sum(seconds), LONGEST_SECONDS)


def nanoseconds(text: str) -> int:
    """Return the length of a Go duration in nanoseconds, rounded as in Go's time.ParseDuration; 0 for `Never`.

    Expects text that has passed its field's pattern.
    """
    total = 0
    for digits, fraction, unit in _GO_PART.findall(text):
        number = digits.lstrip("0") or "0"
        whole = int(number) if len(number) <= _MOST_GO_DIGITS else _MOST_NANOSECONDS
        total += whole * _GO_UNITS[unit] + _part_of(fraction, _GO_UNITS[unit])
    return min(total, _MOST_NANOSECONDS)


def _part_of(digits: str, unit: int) -> int:
    """Return a decimal fraction of a unit. Like Go, calculate in float64 and use only the digits that fit an int64."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > _MOST_NANOSECONDS // 10:
            break
        number, scale = number * 10 + int(digit), scale * 10
    return int(number * (unit / scale))
