"""When a cluster last changed: the forwarder's heartbeat, and the ledger's mark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

CLOCK_SKEW = timedelta(minutes=1)
"""How far a forwarder's clock may be ahead: a heartbeat from far in the future must not count as fresh."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The forwarder's heartbeat: at `at`, the cluster was in the state of the snapshot.

    `changed` is when the last snapshot was taken that the forwarder wrote because of a change.
    """

    at: datetime
    changed: datetime

    def is_fresh(self, now: datetime, stale_after: timedelta) -> bool:
        """Return whether the heartbeat is recent enough for the forwarder to count as alive."""
        return now - stale_after < self.at <= now + CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Marks:
    """When a cluster's snapshot and ledger last changed, None if unknown."""

    heartbeat: Heartbeat | None = None
    ledger_changed: datetime | None = None
