"""A clock that may run faster than real time, shared by all parts of a local system."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class LocalClock:
    """A clock that starts at the current time, or at `start`, and runs `speed` times as fast as real time.

    It is immutable, so threads may share it. `sleep` and `wait` take seconds of this clock; `wall_seconds` converts
    them to real seconds. Raises ValueError for a speed that is not positive. Other processes on this machine share it
    through `to_json` and `from_json`, since they all have the same `monotonic`.
    """

    def __init__(
        self,
        speed: float = 1.0,
        *,
        start: datetime | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed {speed:g}: must be positive; 10 is ten times faster than real time")
        self.speed = speed
        self._monotonic = monotonic
        self._origin = monotonic()
        self._start = (start or datetime.now(UTC)).astimezone(UTC)

    def to_json(self) -> str:
        """Serialize the clock for another process."""
        return json.dumps([self.speed, self._origin, self._start.isoformat()])

    @classmethod
    def from_json(cls, text: str) -> LocalClock:
        """Return the clock that another process serialized."""
        speed, origin, start = json.loads(text)
        clock = cls(speed, start=datetime.fromisoformat(start))
        clock._origin = origin
        return clock

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return self._start + timedelta(seconds=(self._monotonic() - self._origin) * self.speed)

    def wall_seconds(self, seconds: float) -> float:
        """Return how many real seconds `seconds` of this clock take."""
        return seconds / self.speed

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of this clock."""
        time.sleep(self.wall_seconds(seconds))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for the event, at most for `seconds` of this clock. Return whether it is set."""
        return event.wait(self.wall_seconds(seconds))
