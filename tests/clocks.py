"""Clocks that stand still until a test moves them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions.invocable import Feed
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


class Hand:
    """Moves the clock of a local system."""

    def __init__(self, start: datetime | None = None) -> None:
        self.seconds = 0.0
        self.clock = LocalClock(start=start, monotonic=lambda: self.seconds)

    def live(self, feed: Feed, seconds: int) -> None:
        """Let time pass second by second, and run what is due."""
        for _ in range(seconds):
            while feed.poll():
                pass
            self.seconds += 1
