"""Durations as Karpenter's manifests write them: `720h`, `1h30m`, `Never`."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"([0-9]+)([smh])", re.ASCII)
NEVER = "Never"
LONGEST_SECONDS = (2**63 - 1) // 10**9
"""What Kubernetes can count, in nanoseconds: 292 years. More than that is that."""
_MOST_DIGITS = 10


def duration_seconds(text: str | None) -> int | None:
    """Give the length of `text`; None for `Never` and for None.

    Expects text that has passed its field's pattern; anything between the parts is not looked at.
    """
    if text is None or text == NEVER:
        return None
    parts = ((number.lstrip("0") or "0", _UNIT_SECONDS[unit]) for number, unit in _PART.findall(text))
    seconds = (int(n) * unit if len(n) <= _MOST_DIGITS else LONGEST_SECONDS for n, unit in parts)
    return min(sum(seconds), LONGEST_SECONDS)
