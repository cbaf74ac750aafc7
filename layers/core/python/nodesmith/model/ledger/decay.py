"""Exponential decay of remembered amounts: an amount halves with each day that passes."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import exp2, log2

HALF_LIFE = timedelta(hours=24)
"""One day, because activity in clusters follows the time of day: yesterday at this time is the best predictor."""


def left(amount: float, since: datetime, now: datetime) -> float:
    """Return what is left of an amount. If `now` is before `since`, it is the whole amount."""
    return amount * exp2(-max(timedelta(0), now - since) / HALF_LIFE)


def until(least: float, amount: float, since: datetime) -> datetime:
    """Return when an amount has decayed to `least`."""
    return since + HALF_LIFE * log2(max(least, amount) / least)
