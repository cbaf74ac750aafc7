"""Back-offs: what lately failed is left alone for a while, longer with each failure in a row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

FIRST_BACKOFF = timedelta(minutes=3)
LONGEST_BACKOFF = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Something that lately failed and is left alone until `until`; each failure in a row doubles the wait."""

    until: datetime
    failures: int
    reason: str = ""

    def holds(self, now: datetime) -> bool:
        """Return whether it is still to be left alone."""
        return now < self.until


def next_backoff(
    previous: Backoff | None, reason: str, now: datetime, first: timedelta = FIRST_BACKOFF
) -> Backoff:
    """Return the back-off after one more failure: `first` (3 min), doubling to 30 min.

    A failure reported while the former still holds is the same failure seen again: it neither doubles nor extends.
    """
    if previous is not None and previous.holds(now):
        return previous
    failures = previous.failures + 1 if previous else 1
    wait = min(LONGEST_BACKOFF, first * 2 ** min(failures - 1, 10))
    return Backoff(now + wait, failures, reason)
