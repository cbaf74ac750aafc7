"""A clock that may run faster than real time in `nodesmith local`, and how long to wait before a retry."""

from __future__ import annotations

from datetime import UTC, datetime
from random import uniform
from typing import Protocol

_LONGEST_WAIT_SECONDS = 30.0


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


def wait_seconds(failures: int, first_seconds: float) -> float:
    """Return a wait that doubles with every failure in a row, less a random share of up to half of it.

    The random share keeps forwarders that failed together from retrying together.
    """
    doubled = first_seconds * 2.0 ** min(max(0, failures - 1), 10)
    return jittered(min(_LONGEST_WAIT_SECONDS, doubled), 0.5)


def jittered(seconds: float, share: float) -> float:
    """Return `seconds`, less a random share of at most `share`."""
    return seconds * uniform(1.0 - share, 1.0)  # noqa: S311 nothing secret depends on it
