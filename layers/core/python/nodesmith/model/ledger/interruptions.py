"""What past interruptions and drains have shown. Each amount halves with each day that passes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp2, log, log2

HALF_LIFE = timedelta(hours=24)
"""One day, because activity in clusters follows the time of day: yesterday at this time is the best predictor."""


def _left(amount: float, since: datetime, now: datetime) -> float:
    """Return what is _left of an amount. If `now` is before `since`, it is the whole amount."""
    return amount * exp2(-max(timedelta(0), now - since) / HALF_LIFE)


def _until(least: float, amount: float, since: datetime) -> datetime:
    """Return when an amount has decayed to `least`."""
    return since + HALF_LIFE * log2(max(least, amount) / least)


MOST_SECONDS = 60.0
"""Half of the notice of an interruption. A longer drain is blocked by something that no head start helps with."""
_LEAST_SECONDS = 1.0


# PodDisruptionBudgets make pods leave one after the other, and eviction tiers follow each other. How long that
# takes cannot be predicted, only observed.
@dataclass(frozen=True, slots=True)
class DrainTime:
    """The longest recent excess, in seconds, over the longest grace period of the node's pods. It halves each day."""

    beyond_seconds: float
    at: datetime

    def left(self, now: datetime) -> timedelta:
        """Return the excess to expect now."""
        return timedelta(seconds=_left(self.beyond_seconds, self.at, now))

    @property
    def forgotten_at(self) -> datetime:
        """When the excess has decayed to one second."""
        return _until(_LEAST_SECONDS, self.beyond_seconds, self.at)


def learned_drain_time(known: DrainTime | None, beyond: timedelta, now: datetime) -> DrainTime | None:
    """Return the drain time after a drain that took `beyond` too long; None if it was no longer than expected."""
    seconds = min(MOST_SECONDS, beyond.total_seconds())
    if seconds < _LEAST_SECONDS or (known is not None and timedelta(seconds=seconds) <= known.left(now)):
        return None
    return DrainTime(seconds, now)


_FORGOTTEN = 0.01
"""Losses that change prices by less than a tenth of a percent."""


# One number is kept for each pool, its `losses`: the sum, over its interruptions, of the share of nodesmith's
# nodes in the pool that was interrupted, halved for each half-life that has passed since. A pool that interrupts
# each of its nodes r times an hour converges to r × half-life / ln 2 (the sum of 2^(-t / half-life) over its
# interruptions), so that
#
#     interruptions per node and hour = losses × ln 2 / half-life
#     cost of them per hour           = interruptions per node and hour × cost of one
#
# The cost of one interruption is a number of hours of the node's own price (`INTERRUPTION_COST_HOURS`): two nodes
# run side by side until the pods have moved, each pod starts and warms up again, and Jobs start over. With one
# hour, a pool that has just interrupted the only node is 3 % more expensive, and a pool that interrupts every node
# five times a day is 21 % more expensive. A week later, neither differs from other pools.
@dataclass(frozen=True, slots=True)
class Risk:
    """The losses of a pool at one moment, in shares of nodesmith's nodes in the pool."""

    losses: float
    at: datetime

    def losses_at(self, now: datetime) -> float:
        """Return the losses that are _left at `now`."""
        return _left(self.losses, self.at, now)

    def after(self, share: float, now: datetime) -> Risk:
        """Return the risk after another interruption of this share (at most 1) of nodesmith's nodes in the pool."""
        return Risk(self.losses_at(now) + share, now)

    def surcharge_percent(self, now: datetime, cost_hours: float) -> int:
        """Return what risk adds to the hourly price of a node, in whole percent, so that results remain cacheable."""
        hourly = self.losses_at(now) * log(2) / (HALF_LIFE / timedelta(hours=1))
        return round(100 * hourly * cost_hours)

    def cheaper_from(self, now: datetime, cost_hours: float) -> datetime | None:
        """Return when the surcharge falls to a lower whole percentage; None if it is already 0.

        The result is a second late, because rounding might still go up at the exact moment.
        """
        percent = self.surcharge_percent(now, cost_hours)
        if percent <= 0:
            return None
        per_percent = HALF_LIFE / timedelta(hours=1) / (100 * log(2) * cost_hours)
        return _until((percent - 0.5) * per_percent, self.losses, self.at) + timedelta(seconds=1)

    @property
    def forgotten_at(self) -> datetime:
        """When the risk has become negligible."""
        return _until(_FORGOTTEN, self.losses, self.at)
