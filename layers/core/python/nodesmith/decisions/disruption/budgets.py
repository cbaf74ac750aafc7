"""How many more of a NodePool's nodes may be disrupted now.

Rules are Karpenter's: of all budgets that are active and name the reason the least counts; a percentage is rounded up;
nodes that end or are not Ready are already disrupted, whatever the cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from nodesmith.model.budgets import Budget
from nodesmith.model.cron import CronError, last_hit, parse_cron


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
