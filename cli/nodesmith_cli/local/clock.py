"""A clock that may run faster than life, shared by everything in a local system."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class LocalClock:
    """Time that starts now and runs `speed` times as fast. Safe to share between threads: nothing in it changes.

    `sleep` and `wait` take seconds of this clock, `wall_seconds` turns them into seconds of life. Raises ValueError
    for a speed that is not positive. Other processes of this machine share it by `to_json` and `from_json`, for
    `monotonic` is one for all of them.
    """

    def __init__(
        self,
        speed: float = 1.0,
        *,
        start: datetime | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed {speed:g}: must be positive, 10 is ten times as fast as life")
        self.speed = speed
        self._monotonic = monotonic
        self._origin = monotonic()
        self._start = (start or datetime.now(UTC)).astimezone(UTC)

    def to_json(self) -> str:
        """Write the clock down for another process."""
        return json.dumps([self.speed, self._origin, self._start.isoformat()])

    @classmethod
    def from_json(cls, text: str) -> LocalClock:
        """Return the clock that another process has written down."""
        speed, origin, start = json.loads(text)
        clock = cls(speed, start=datetime.fromisoformat(start))
        clock._origin = origin
        return clock

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._start + timedelta(seconds=(self._monotonic() - self._origin) * self.speed)

    def wall_seconds(self, seconds: float) -> float:
        """Return how long `seconds` of this clock take."""
        return seconds / self.speed

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        time.sleep(self.wall_seconds(seconds))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Return when the event is set (True), at the latest after `seconds` of this clock."""
        return event.wait(self.wall_seconds(seconds))
