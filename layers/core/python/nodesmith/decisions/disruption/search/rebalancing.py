"""Rebalancing: move nodes whose pods are in excess in their zone, one per move, if their NodePool enables it.

A pod changes its zone only with its node: nodesmith does not move single pods. The nodes with the most excess pods come
first. Of a workload, one node moves at a time, since the arrival of its pods determines what is left to do. Such moves
may cost money, so the pods must have been quiet for an hour: workloads that come and go balance themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from nodesmith.decisions.disruption.candidates import Candidate, quiet_since
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.disruption.simulation.simulation import Trial
from nodesmith.model.ledger.moves import Reason

QUIET = timedelta(hours=1)
"""How long a node must have had no pod events before it is disrupted for the sake of zones."""
_NEVER = datetime.min.replace(tzinfo=UTC)


def rebalance(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to move unbalanced nodes as far as budgets allow, leaving half of the steps for consolidation."""
    zones = under_way.zones
    if zones is None:
        return
    reserve = under_way.left // 2
    surplus = {one: zones.surplus(one) for one in candidates if is_asked(one, under_way)}
    order = sorted(
        (one for one in surplus if surplus[one]),
        key=lambda one: (looked_at.get(one.name, _NEVER), -surplus[one], one.name),
    )
    for one in order:
        if under_way.left <= reserve:
            break
        if not zones.surplus(one) or not under_way.allowed.within([one], Reason.UNBALANCED):
            continue
        found, trial = rebalanced(one, under_way)
        if isinstance(found, Proposal):
            under_way.accept([one], found, trial)
    under_way.note_budget(order, Reason.UNBALANCED)


def rebalanced(one: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that spreads a node's pods over zones, or the reason why there is none, and the trial."""
    trial = under_way.try_without([one])
    return under_way.judge.rebalancing([one], trial), trial


def is_asked(one: Candidate, under_way: Pass) -> bool:
    """Return whether a node may be disrupted for the sake of zones now."""
    if not one.pool.disruption.rebalances_zones or not under_way.is_free(one):
        return False
    is_quiet = under_way.inputs.now - quiet_since(one.claim, one.node) >= QUIET
    return is_quiet and under_way.backing_off(one, Reason.UNBALANCED) is None
