"""Reclaiming of spot instances: every spot warning on the event bus, from any sender, takes effect."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from moto.events.models import EventsBackend

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.notices import SPOT_WARNING, WARNING

SHUTDOWN = timedelta(seconds=20)
"""Time from shutting-down to terminated."""


class Reclaims:
    """The instances that EC2 will reclaim. Inside `listening`, warnings are recorded; `step` carries them out.

    Threads may share it.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._due: dict[str, datetime] = {}
        self._ending: dict[str, datetime] = {}
        self._lock = threading.Lock()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the spot warnings among all events that are put on an event bus."""
        put_events = EventsBackend.put_events

        def noting(backend: EventsBackend, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
            results = put_events(backend, events)
            for event in (e for e in events if e.get("DetailType") == SPOT_WARNING):
                self._note(event)
            return results

        with patch.object(EventsBackend, "put_events", noting):
            yield

    def step(self, become: Callable[[str, str], None], now: datetime) -> None:
        """Carry out what is due: an instance shuts down, and is terminated a little later."""
        with self._lock:
            for instance in [i for i, until in self._due.items() if until <= now]:
                self._ending[instance] = self._due.pop(instance) + SHUTDOWN
                become(instance, "shutting-down")
            for instance in [i for i, until in self._ending.items() if until <= now]:
                del self._ending[instance]
                become(instance, "terminated")

    def _note(self, event: Mapping[str, Any]) -> None:
        instance = str(json.loads(event["Detail"]).get("instance-id"))
        until = _time(event.get("Time"), self._now()) + WARNING
        with self._lock:
            if instance not in self._ending:
                self._due[instance] = min(until, self._due.get(instance, until))


def _time(value: object, now: datetime) -> datetime:
    """Parse a time from moto: seconds since 1970, or text. Anything else means `now`."""
    if isinstance(value, str):
        return parse_time(value)
    return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else now
