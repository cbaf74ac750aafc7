"""Lengths of time as options of commands give them."""

from __future__ import annotations

import re

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.durations import duration_seconds

_DURATION = re.compile(r"([0-9]+[smh])+", re.ASCII)


def seconds_of(option: str, text: str) -> float:
    """Return the seconds that an option asks for. Raises Rejected for what is no duration."""
    if not _DURATION.fullmatch(text):
        raise Rejected(f"{option} {text!r}: write a duration such as 90s, 5m or 1h30m")
    return float(duration_seconds(text) or 0)
