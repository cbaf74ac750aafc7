"""Durations in command-line options."""

from __future__ import annotations

import re

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import duration_seconds

_DURATION = re.compile(r"([0-9]+[smh])+", re.ASCII)


def seconds_of(option: str, text: str) -> float:
    """Parse an option's duration, and return it in seconds. Raises Rejected if `text` is not a duration."""
    if not _DURATION.fullmatch(text):
        raise Rejected(f"{option} {text!r}: expected a duration such as 90s, 5m or 1h30m")
    return float(duration_seconds(text) or 0)
