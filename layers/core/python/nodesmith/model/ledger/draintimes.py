"""Drain times: how much longer than the grace of its pods the drain of a NodePool's nodes takes, as we have seen it.

Budgets let pods go one after the other, and tiers follow each other; neither shows before it happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.model.ledger import decay

MOST_SECONDS = 60.0
"""Half a notice: who takes longer is held up by something that no head start mends."""
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DrainTime:
    """The longest of late, in seconds beyond the longest grace of the node's pods; half as much for each day since."""

    beyond_seconds: float
    at: datetime

    def left(self, now: datetime) -> timedelta:
        """Return what is still to be reckoned with."""
        return timedelta(seconds=decay.left(self.beyond_seconds, self.at, now))

    @property
    def forgotten_at(self) -> datetime:
        """Return when it comes to less than a second."""
        return decay.until(_LEAST_SECONDS, self.beyond_seconds, self.at)


def learned(known: DrainTime | None, beyond: timedelta, now: datetime) -> DrainTime | None:
    """Return what a drain teaches; None where it took no longer than was to be reckoned with."""
    seconds = min(MOST_SECONDS, beyond.total_seconds())
    if seconds < _LEAST_SECONDS or (known is not None and timedelta(seconds=seconds) <= known.left(now)):
        return None
    return DrainTime(seconds, now)
