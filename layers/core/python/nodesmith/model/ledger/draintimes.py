"""Drain times: how much longer than their pods' grace periods drains of a NodePool's nodes have taken.

PodDisruptionBudgets make pods leave one after the other, and eviction tiers follow each other. How long that takes
cannot be predicted, only observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.model.ledger import decay

MOST_SECONDS = 60.0
"""Half of the notice of an interruption. A longer drain is blocked by something that no head start helps with."""
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DrainTime:
    """The longest recent excess, in seconds, over the longest grace period of the node's pods. It halves each day."""

    beyond_seconds: float
    at: datetime

    def left(self, now: datetime) -> timedelta:
        """Return the excess to expect now."""
        return timedelta(seconds=decay.left(self.beyond_seconds, self.at, now))

    @property
    def forgotten_at(self) -> datetime:
        """When the excess has decayed to one second."""
        return decay.until(_LEAST_SECONDS, self.beyond_seconds, self.at)


def learned(known: DrainTime | None, beyond: timedelta, now: datetime) -> DrainTime | None:
    """Return the drain time after a drain that took `beyond` too long; None if it was no longer than expected."""
    seconds = min(MOST_SECONDS, beyond.total_seconds())
    if seconds < _LEAST_SECONDS or (known is not None and timedelta(seconds=seconds) <= known.left(now)):
        return None
    return DrainTime(seconds, now)
