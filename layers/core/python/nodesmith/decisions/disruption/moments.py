"""When time alone, in a cluster that does not change, may make a search come to something else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from nodesmith.decisions.disruption.rebalancing import QUIET
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.model.nodepools import parsed_nodepools

LATEST = timedelta(minutes=5)
"""By then in any case, as in Karpenter: pods' times of protection, prices and nodes' ages are not foreseen here."""


def next_change(inputs: Inputs) -> datetime:
    """Give the first such moment that can be foreseen: a node quiet for long enough, a back-off over, a new minute.

    Minutes are what the schedules of budgets count in.
    """
    return min((at for at in _moments(inputs) if at > inputs.now), default=inputs.now + LATEST)


def _moments(inputs: Inputs) -> Iterator[datetime]:
    yield inputs.now + LATEST
    pools = parsed_nodepools(inputs.snapshot.nodepools)
    if any(budget.schedule for pool in pools.values() for budget in pool.disruption.budgets):
        yield inputs.now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    yield from (backoff.until for backoff in inputs.ledger.unavailable.values())
    yield from (backoff.until for backoff in inputs.ledger.nodepool_backoffs.values())
    yield from (backoff.until for backoff in inputs.ledger.move_backoffs.values())
    for claim in inputs.ledger.claims:
        node, pool = inputs.snapshot.node_of(claim), pools.get(claim.nodepool)
        after = pool.disruption.consolidate_after_seconds if pool is not None else None
        if node is None or after is None:
            continue
        waits = [timedelta(seconds=after), *([QUIET] if pool and pool.disruption.rebalances_zones else [])]
        moments = [at for at in (node.last_pod_event_at, claim.initialized_at) if at]
        yield from (at + wait for at in moments for wait in waits)
