"""Emptiness: nodes without pods that would need another node are removed, each by a move of its own."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.model.ledger.moves import Reason


def let_go(empty: Iterable[Candidate], under_way: Pass) -> None:
    """Propose to remove as many empty nodes as budgets allow, the most expensive first."""
    order = sorted(empty, key=lambda one: (-one.price_hourly_usd, one.name))
    for one in under_way.allowed.within(order, Reason.EMPTY):
        under_way.accept([one], under_way.emptied([one]), None)
    under_way.note_budget(order, Reason.EMPTY)
