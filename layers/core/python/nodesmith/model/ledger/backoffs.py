"""Back-offs: something that failed is not tried again for a while, which grows with each consecutive failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

FIRST_BACKOFF = timedelta(minutes=3)
LONGEST_BACKOFF = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Something that failed is not tried again before `until`. Each consecutive failure doubles the wait."""

    until: datetime
    failures: int
    reason: str = ""

    def holds(self, now: datetime) -> bool:
        """Return whether the back-off still applies."""
        return now < self.until


def next_backoff(
    previous: Backoff | None, reason: str, now: datetime, first: timedelta = FIRST_BACKOFF
) -> Backoff:
    """Return the back-off after another failure: `first` (default 3 min), doubling up to 30 min.

    A failure that is reported while `previous` still applies counts as the same failure: it neither doubles nor extends
    the back-off.
    """
    if previous is not None and previous.holds(now):
        return previous
    failures = previous.failures + 1 if previous else 1
    wait = min(LONGEST_BACKOFF, first * 2 ** min(failures - 1, 10))
    return Backoff(now + wait, failures, reason)
