"""Risks: how often EC2 takes nodes of a pool back, as we have seen it, and what that makes the pool's nodes cost.

What is kept is one number a pool, its `losses`: of each interruption the share of our nodes in the pool that it took,
half as much for each half-life that has passed since. A pool that takes each of its nodes r times an hour comes to
r × half-life / ln 2 in the long run (the sum of 2^(-t / half-life) over its interruptions), so that

    interruptions per node and hour = losses × ln 2 / half-life
    cost of them per hour           = interruptions per node and hour × cost of one

One is taken to cost so many hours of the node's own price (`INTERRUPTION_COST_HOURS`): two nodes run side by side until
the pods have moved, each pod starts and warms up again, and Jobs begin anew. With an hour, a pool that has just taken
our only node is 3 % dearer, one that takes every node five times a day 21 %; a week later both are as good as others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log

from nodesmith.model.ledger.decay import HALF_LIFE, left, until

_FORGOTTEN = 0.01
"""Losses that change no price by as much as a tenth of a percent."""


@dataclass(frozen=True, slots=True)
class Risk:
    """What a pool's interruptions come to at a moment; nodes, as a share of ours in the pool."""

    losses: float
    at: datetime

    def losses_at(self, now: datetime) -> float:
        """Return what is left of them."""
        return left(self.losses, self.at, now)

    def after(self, share: float, now: datetime) -> Risk:
        """Return the risk after one more interruption that took this share of our nodes in the pool, up to 1."""
        return Risk(self.losses_at(now) + share, now)

    def surcharge_percent(self, now: datetime, cost_hours: float) -> int:
        """Return what an hour of a node is dearer by, in whole percent of its price: finer, nothing could be kept."""
        hourly = self.losses_at(now) * log(2) / (HALF_LIFE / timedelta(hours=1))
        return round(100 * hourly * cost_hours)

    def cheaper_from(self, now: datetime, cost_hours: float) -> datetime | None:
        """Return when an hour of a node is dearer by fewer percent than now; None where it is no dearer.

        That is a second late: at the moment itself rounding might still go up.
        """
        percent = self.surcharge_percent(now, cost_hours)
        if percent <= 0:
            return None
        per_percent = HALF_LIFE / timedelta(hours=1) / (100 * log(2) * cost_hours)
        return until((percent - 0.5) * per_percent, self.losses, self.at) + timedelta(seconds=1)

    @property
    def forgotten_at(self) -> datetime:
        """Return when it comes to nothing."""
        return until(_FORGOTTEN, self.losses, self.at)
