"""Time, as something that may run faster than life in `nodesmith local`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A clock, and what a duration on it is in real seconds."""

    def now(self) -> datetime:
        """Return the time, aware."""

    def wall_seconds(self, seconds: float) -> float:
        """Return how long `seconds` of this clock really take."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    def wall_seconds(self, seconds: float) -> float:
        """Return the same: a second is a second."""
        return seconds
