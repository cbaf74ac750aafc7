"""Sends notifications, each once as far as possible, within limits of number and money.

Which were sent is remembered in this process and in an object, so that a new process does not repeat them. A crash
between the two repeats some with the same id. Nothing here fails a run, and nothing waits for EventBridge longer than
seconds: if a call fails, the next one is made minutes later.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from nodesmith.controllers.launching.unschedulable import FAILED_SCHEDULING, SCALE_UP_DELAYED, STALE_AFTER
from nodesmith.decisions.reporting.notifications import (
    Notification,
    Unplaced,
    is_anyone_waiting,
    of_budgets,
    of_claims,
    of_spending,
    of_unplaced,
)
from nodesmith.decisions.scheduling.offerings.quotas import usages
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.keys import notified_key, unplaced_key
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import NONE_THERE, Blobs, VersionedBlobs
from nodesmith.regionports import EventBus

MOST_A_RUN = 50
MOST_AN_HOUR = 1000
"""At one US dollar for a million events, a cluster costs at most 0.73 USD a month, whatever happens in it."""
MOST_OF_A_KIND = 500
"""The most of one kind in an hour, so that pods without a node do not keep others from being sent."""
_HOUR = timedelta(hours=1)
_REST = timedelta(minutes=5)
"""How long nothing is sent after a call has failed."""
_SELDOM = timedelta(minutes=5)
"""How often budgets and limits are examined: they change slowly, and it takes time."""
_KEPT_FOR = timedelta(days=32)
"""Longer than the period within which a notification is not repeated, a month."""
_MOST_KEPT = 5000
_LARGEST_BYTES = 2**20
_ATTEMPTS = 2


class SentNotifications:
    """Which notifications were sent: id → when, and of which kind."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[datetime, str]] = {}

    def __contains__(self, notification: Notification) -> bool:
        return notification.id in self._at

    def note(self, notification: Notification, now: datetime) -> None:
        """Remember that it was sent."""
        self._at[notification.id] = now, notification.kind

    def allowed(self, candidates: Sequence[Notification], now: datetime) -> Iterator[Notification]:
        """Yield those that were not sent and may be sent now, each once, in order."""
        spent = Counter(kind for at, kind in self._at.values() if now - at < _HOUR)
        total, left = spent.total(), MOST_A_RUN
        for notification in {one.id: one for one in candidates if one not in self}.values():
            if not left or total >= MOST_AN_HOUR:
                return
            if spent[notification.kind] < MOST_OF_A_KIND:
                left, total = left - 1, total + 1
                spent[notification.kind] += 1
                yield notification

    def merge(self, data: bytes | None) -> None:
        """Add what another process wrote. Anything unreadable is ignored, at the cost of repetitions."""
        try:
            published = json.loads(data or b"{}").get("sent", {})
            for name, (at, kind) in published.items():
                self._at.setdefault(str(name), (datetime.fromisoformat(at), str(kind)))
        except (AttributeError, TypeError, ValueError):
            return

    def to_bytes(self, now: datetime) -> bytes:
        """Return the object to write, with the newest entries only."""
        newest = sorted(self._at.items(), key=lambda item: (item[1][0], item[0]))[-_MOST_KEPT:]
        self._at = {name: entry for name, entry in newest if now - entry[0] < _KEPT_FOR}
        published = {name: [at.isoformat(), kind] for name, (at, kind) in self._at.items()}
        return json.dumps({"format": 1, "sent": published}, separators=(",", ":")).encode()


class _Objects(Blobs, VersionedBlobs, Protocol):
    """Objects that can be read with their version."""


class Notifier:
    """Finds and sends the notifications of one cluster. Kept from run to run."""

    def __init__(self, bus: EventBus, blobs: _Objects, cluster: str, settings: NodeSettings) -> None:
        self._bus, self._blobs, self._cluster, self._settings = bus, blobs, cluster, settings
        self._sent, self._tag = SentNotifications(), NONE_THERE
        self._rests_until: datetime | None = None
        self._examined_at: datetime | None = None

    def notify(self, ledger: Ledger, snapshot: Snapshot, now: datetime) -> int:
        """Send what the state calls for and was not sent yet; return how many were accepted. Never raises."""
        if self._rests_until is not None and now < self._rests_until:
            return 0
        try:
            candidates = list(self._notifications(ledger, snapshot, now))
            if all(notification in self._sent for notification in candidates):
                return 0
            self._read()
            return self._send(list(self._sent.allowed(candidates, now)), now)
        except (Transient, Rejected):
            self._rests_until = now + _REST
            return 0

    def _notifications(self, ledger: Ledger, snapshot: Snapshot, now: datetime) -> Iterator[Notification]:
        if self._examined_at is None or now - self._examined_at >= _SELDOM:
            self._examined_at = now
            yield from of_spending(usages(snapshot, ledger, self._settings, now), self._cluster, now)
            yield from of_budgets(ledger, snapshot, now)
        yield from of_claims(ledger.claims, self._cluster, now)
        if is_anyone_waiting(snapshot, now):
            yield from of_unplaced(read_unplaced(self._blobs, self._cluster, now), snapshot, now)

    def _send(self, notifications: Sequence[Notification], now: datetime) -> int:
        by_id, sent = {notification.id: notification for notification in notifications}, 0
        try:
            for accepted in self._bus.put(notifications):
                self._sent.note(by_id[accepted], now)
                sent += 1
        except (Transient, Rejected):
            self._rests_until = now + _REST
        if sent:
            self._write(now)
        return sent

    def _read(self) -> None:
        version = self._blobs.read(notified_key(self._cluster), self._tag, _LARGEST_BYTES)
        self._tag = version.tag
        self._sent.merge(version.data)

    def _write(self, now: datetime) -> None:
        """Write which were sent. If that fails, this process remembers them all the same."""
        for _ in range(_ATTEMPTS):
            try:
                key = notified_key(self._cluster)
                self._tag = self._blobs.replace(key, self._sent.to_bytes(now), self._tag)
                return
            except Conflict:
                self._read()
            except (Transient, Rejected):
                return


def read_unplaced(blobs: Blobs, cluster: str, now: datetime) -> list[Unplaced]:
    """Return the pods that the last decision bought nothing for; none if it is more than 15 minutes old.

    Pods whose purchase their own annotation delays are not among them.
    """
    data = blobs.get(unplaced_key(cluster))
    written = json.loads(data) if data else {}
    if not written or now - datetime.fromisoformat(written["at"]) > STALE_AFTER:
        return []
    return [
        Unplaced(pod, group["reason"], group["fix"])
        for group in written["unplaced"]
        if group.get("event", FAILED_SCHEDULING) != SCALE_UP_DELAYED
        for pod in group["pods"]
    ]
