"""Events of one function that wait for their time, by a clock that may run faster than real time."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions.failedevents import Request

_MOMENT_SECONDS = 0.001
"""Real seconds. An event is due after its time, not at it."""


@dataclass(slots=True)
class Event:
    """An event that is kept until the function has run for it. `rank` orders the events that are due."""

    request: Request
    trace: str
    accepted_at: datetime
    due: datetime
    rank: float
    runs: int = 0
    throttles: int = 0


class EventQueue:
    """Hands each event to one taker once it is due. Threads may share it."""

    def __init__(self, clock: LocalClock) -> None:
        self._clock = clock
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._events)

    def put(self, *events: Event) -> None:
        """Add events."""
        with self._changed:
            self._events.extend(events)
            self._changed.notify_all()

    def take(self, wait_seconds: float) -> Event | None:
        """Return the first due event, or None if none is due within `wait_seconds` of real time."""
        with self._changed:
            event = self._due()
            if event is None and wait_seconds and not self._closed:
                self._changed.wait(min(wait_seconds, self._seconds_until_due(wait_seconds)))
                event = self._due()
            return event

    def close(self) -> None:
        """Hand out no more events, and release threads that wait for one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _due(self) -> Event | None:
        now = self._clock.now()
        due = [queued for queued in self._events if queued.due <= now]
        if not due or self._closed:
            return None
        event = min(due, key=lambda each: each.rank)
        self._events.remove(event)
        return event

    def _seconds_until_due(self, otherwise: float) -> float:
        """Return the real seconds until the next event is due, or `otherwise` if there is none."""
        first = min((queued.due for queued in self._events), default=None)
        if first is None:
            return otherwise
        seconds = (first - self._clock.now()).total_seconds()
        return max(0.0, self._clock.wall_seconds(seconds)) + _MOMENT_SECONDS
