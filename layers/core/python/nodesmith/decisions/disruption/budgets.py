"""How many more of a NodePool's nodes may be disrupted now.

Rules are Karpenter's: of all budgets that are active and name the reason the least counts; a percentage is rounded up;
nodes that end or are not Ready are already disrupted, whatever the cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from nodesmith.model.budgets import Budget
from nodesmith.model.cron import CronError, last_hit, parse_cron
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodepools import NodePool
from nodesmith.model.snapshot import Snapshot

_COUNTED = frozenset({Phase.INITIALIZED, Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED})
"""Phases in which a node counts for its NodePool's budgets."""


def room(
    pool: NodePool,
    reason: str,
    claims: Iterable[NodeClaim],
    going: Collection[NodeClaim],
    snapshot: Snapshot,
    now: datetime,
) -> int | None:
    """Give how many more nodes of a NodePool its budgets let go, beside those that are `going`; None for all."""
    ready = {node.provider_id for node in snapshot.nodes if node.is_ready}
    counted = [c for c in claims if c.nodepool == pool.name and c.phase in _COUNTED]
    disrupted = [c for c in counted if c.is_ending or c in going or c.provider_id not in ready]
    return allowed(pool.disruption.budgets, reason, len(counted), len(disrupted), now)


def allowed(budgets: Iterable[Budget], reason: str, nodes: int, disrupted: int, now: datetime) -> int | None:
    """Give how many more of `nodes` may go for a reason; None where no budget says anything, so all of them."""
    limits = [
        _count(budget.nodes, nodes)
        for budget in budgets
        if (budget.reasons is None or reason in budget.reasons) and is_active(budget, now)
    ]
    return max(0, min(limits) - disrupted) if limits else None


def is_active(budget: Budget, now: datetime) -> bool:
    """Tell whether a budget holds now: always, or for its duration from each moment of its schedule on.

    One whose schedule cannot be read holds always.
    """
    if budget.schedule is None or budget.duration_seconds is None:
        return True
    try:
        schedule = parse_cron(budget.schedule)
    except CronError:
        return True
    return last_hit(schedule, now - timedelta(seconds=budget.duration_seconds), now) is not None


def _count(text: str, nodes: int) -> int:
    if text.endswith("%"):
        return -(-int(text[:-1]) * nodes // 100)
    return int(text)
