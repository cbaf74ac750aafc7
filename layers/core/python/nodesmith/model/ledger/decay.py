"""What is remembered fades: of a number there is half as much left for each day that has passed."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import exp2, log2

HALF_LIFE = timedelta(hours=24)
"""Clusters live by the hours of the day: what happened yesterday at this time says most."""


def left(amount: float, since: datetime, now: datetime) -> float:
    """Return what is left of an amount; a clock that is behind changes nothing."""
    return amount * exp2(-max(timedelta(0), now - since) / HALF_LIFE)


def until(least: float, amount: float, since: datetime) -> datetime:
    """Return when no more than `least` is left of an amount."""
    return since + HALF_LIFE * log2(max(least, amount) / least)
