"""Expiry of Events after an hour, as in a real cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nodesmith_formats.kubernetes.objects import View, name_of, namespace_of, parse_timestamp
from nodesmith_local.apiserver.storage.store import Store

LIFE = timedelta(hours=1)
_EVERY = timedelta(minutes=10)


class EventExpiry:
    """Deletes events that have not recurred for an hour."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = store.now() + _EVERY

    def due(self) -> datetime:
        """Return the time of the next check."""
        return self._next

    def step(self) -> bool:
        """Delete old events, every ten minutes."""
        now = self._store.now()
        if now < self._next:
            return False
        self._next = now + _EVERY
        old = [recorded for recorded in self._store.list("events") if _last_seen(recorded) <= now - LIFE]
        for event in old:
            self._store.delete("events", name_of(event), namespace_of(event))
        return bool(old)


def _last_seen(event: View) -> datetime:
    for field in ("lastTimestamp", "eventTime"):
        seen_at = parse_timestamp(event.get(field))
        if seen_at is not None:
            return seen_at
    return parse_timestamp(event["metadata"]["creationTimestamp"]) or datetime.max.replace(tzinfo=UTC)
