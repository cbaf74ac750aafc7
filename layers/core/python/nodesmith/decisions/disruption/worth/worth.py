"""What a move is worth: money saved as long as it lasts, less the harm it does, less running both for a while.

    worth = saving per hour × expected life
          − harm × price of an eviction − what is lost − price per hour of what is bought × overlap

One formula serves all policies; they differ in what an eviction costs. `WhenEmpty` holds it beyond price.
`WhenEmptyOrUnderutilized` takes what it costs in money: a pod that restarts starts, connects and warms up for about ten
minutes, which on an instance for one pod of 1 cpu (0.05 USD an hour) is 0.008 USD. `Balanced` prices it by the
NodePool itself, as Karpenter does: a move must save at least half the share of its price that it disrupts of its pods.

Lost is what pods of Jobs have done so far, for they begin anew, and the time that pods take to be at work where those
like them have shown that to be more than the ten minutes (see `costs` and `observation.startups`).

How long will it last? Nobody knows; what has been quiet for long will mostly stay so for as long again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import fsum, inf

from nodesmith.decisions.disruption.candidates import Candidate, Survey, quiet_since
from nodesmith.decisions.expiration import expires_at
from nodesmith.model.karpenter.disruption import BALANCED, WHEN_EMPTY

EVICTION_USD = 0.008
LEAST_SAVING = 0.02
"""of what the sources cost: a move that saves less is not made, which is what makes cycles impossible"""
OVERLAP_HOURS = 5 / 60
"""How long sources and replacements run side by side: boot, drain, and EC2's shutting down."""
_SHORTEST, _LONGEST = timedelta(hours=1), timedelta(hours=24)
_BALANCED_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """What all nodes of a NodePool cost, USD an hour, and what disrupting all their pods would, in evictions."""

    price_hourly_usd: float
    harm: float


def totals(survey: Survey) -> dict[str, PoolTotals]:
    """Return the totals of each NodePool, by name. As Karpenter counts it, a node is 1 beside its pods.

    Where the policy is Balanced, which asks for them, nodes count that may not be disrupted now, too.
    """
    found: dict[str, PoolTotals] = {}
    mine = ((one.pool.name, one.price_hourly_usd, one.harm) for one in survey.candidates)
    for pool, price, harm in (*mine, *survey.kept(BALANCED)):
        known = found.get(pool, PoolTotals(0.0, 0.0))
        found[pool] = PoolTotals(known.price_hourly_usd + price, known.harm + 1.0 + harm)
    return found


def worth_usd(
    sources: Collection[Candidate],
    bought_hourly_usd: float,
    known: Mapping[str, PoolTotals],
    now: datetime,
) -> float:
    """Return what a move is worth; less than 0 where it is not to be made. Nodes bought cost so much, at the dearest.

    It is worth no more than to any of its NodePools with policy Balanced: what others save pays for none of their pods.
    """
    price = fsum(source.price_hourly_usd for source in sources)
    saving, life = price - bought_hourly_usd, expected_hours(sources, now)
    harms = [eviction_usd(source, known, life) * source.harm if source.harm else 0.0 for source in sources]
    lost = fsum(source.lost_usd for source in sources)
    worth = saving * life - fsum(harms) - lost - bought_hourly_usd * OVERLAP_HOURS
    balanced = {s.pool.name for s in sources if s.pool.disruption.consolidation_policy == BALANCED}
    for pool in sorted(balanced) if price else ():
        mine = [
            (s.price_hourly_usd, harm) for s, harm in zip(sources, harms, strict=True) if s.pool.name == pool
        ]
        share = fsum(own for own, _ in mine) / price
        worth = min(worth, saving * share * life - fsum(harm for _, harm in mine))
    return worth


def eviction_usd(source: Candidate, known: Mapping[str, PoolTotals], life_hours: float) -> float:
    """Return what an ordinary pod's eviction costs on a node, USD, by its NodePool's policy."""
    policy = source.pool.disruption.consolidation_policy
    if policy == WHEN_EMPTY:
        return inf
    if policy != BALANCED:
        return EVICTION_USD
    mine = known[source.pool.name]
    per_hour = mine.price_hourly_usd / (mine.harm * _BALANCED_FACTOR)
    return per_hour * life_hours * (1.0 + source.harm) / source.harm


def expected_hours(sources: Collection[Candidate], now: datetime) -> float:
    """Return how long a move's saving is expected to last: as long as its sources have been quiet, an hour to a day.

    Not longer than until the first of them would have ended anyway.
    """
    quiet = min(now - quiet_since(source.claim, source.node) for source in sources)
    life = min(max(quiet, _SHORTEST), _LONGEST)
    ends = [end - now for end in (expires_at(source.claim) for source in sources) if end is not None]
    return max(timedelta(0), min([life, *ends])) / timedelta(hours=1)


def worth_more_from(quiet: datetime, now: datetime, soon: timedelta) -> datetime | None:
    """Return when a move of a node that has been `quiet` since may be worth more than now; None for never.

    While its expected life grows that is at any moment, and `soon` is when to look.
    """
    if now < quiet + _SHORTEST:
        return quiet + _SHORTEST
    return now + soon if now < quiet + _LONGEST else None


def is_enough(sources: Collection[Candidate], saving_hourly_usd: float) -> bool:
    """Return whether a move saves so much of what its sources cost that it may be made at all."""
    return saving_hourly_usd >= LEAST_SAVING * fsum(source.price_hourly_usd for source in sources)
