"""What says when a cluster last changed: the forwarder's heartbeat, and a mark in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

CLOCK_SKEW = timedelta(minutes=1)
"""How far a forwarder's clock may be ahead: what is of next year must not count as fresh until then."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The forwarder's sign of life: at `at` the cluster was as the snapshot says.

    `changed` is when the last snapshot was taken that it has written because something had changed.
    """

    at: datetime
    changed: datetime

    def is_fresh(self, now: datetime, stale_after: timedelta) -> bool:
        """Return whether the forwarder counts as alive."""
        return now - stale_after < self.at <= now + CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Marks:
    """When a cluster's snapshot and ledger last changed, None where nothing is known of it."""

    heartbeat: Heartbeat | None = None
    ledger_changed: datetime | None = None
