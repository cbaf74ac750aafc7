"""Risks: how often EC2 has interrupted nodes of a pool, and what that adds to the cost of the pool's nodes.

One number is kept for each pool, its `losses`: the sum, over its interruptions, of the share of nodesmith's nodes in
the pool that was interrupted, halved for each half-life that has passed since. A pool that interrupts each of its nodes
r times an hour converges to r × half-life / ln 2 (the sum of 2^(-t / half-life) over its interruptions), so that

    interruptions per node and hour = losses × ln 2 / half-life
    cost of them per hour           = interruptions per node and hour × cost of one

The cost of one interruption is a number of hours of the node's own price (`INTERRUPTION_COST_HOURS`): two nodes run
side by side until the pods have moved, each pod starts and warms up again, and Jobs start over. With one hour, a pool
that has just interrupted the only node is 3 % more expensive, and a pool that interrupts every node five times a day is
21 % more expensive. A week later, neither differs from other pools.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log

from nodesmith.model.ledger.decay import HALF_LIFE, left, until

_FORGOTTEN = 0.01
"""Losses that change prices by less than a tenth of a percent."""


@dataclass(frozen=True, slots=True)
class Risk:
    """The losses of a pool at one moment, in shares of nodesmith's nodes in the pool."""

    losses: float
    at: datetime

    def losses_at(self, now: datetime) -> float:
        """Return the losses that are left at `now`."""
        return left(self.losses, self.at, now)

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
        return until((percent - 0.5) * per_percent, self.losses, self.at) + timedelta(seconds=1)

    @property
    def forgotten_at(self) -> datetime:
        """When the risk has become negligible."""
        return until(_FORGOTTEN, self.losses, self.at)
