"""A clock that stands still until a test moves it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tests import builders


@dataclass(slots=True)
class StillClock:
    """A clock for the core, which calls it, and for the forwarder, which asks it for `now`."""

    time: datetime = builders.NOW

    def __call__(self) -> datetime:
        """Return the time."""
        return self.time

    def now(self) -> datetime:
        """Return the time."""
        return self.time

    def wall_seconds(self, seconds: float) -> float:
        """Return the same number of seconds."""
        return seconds
