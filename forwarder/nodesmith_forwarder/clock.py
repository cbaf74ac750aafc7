"""A clock that may run faster than real time in `nodesmith local`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A clock that can convert its durations to real seconds."""

    def now(self) -> datetime:
        """Return the time, with its time zone."""

    def wall_seconds(self, seconds: float) -> float:
        """Return how many real seconds `seconds` of this clock take."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    def wall_seconds(self, seconds: float) -> float:
        """Return `seconds`: this clock runs in real time."""
        return seconds
