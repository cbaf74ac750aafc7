"""The methods of disruption that look at single nodes: emptiness, replacement of drifted nodes, and rebalancing.

Each node gets a move of its own. If a drifted node cannot be replaced, because a pod would have no node or the NodePool
may not buy, the other nodes are not affected. Rebalancing moves nodes whose pods are in excess in their zone, if their
NodePool enables it: a pod changes its zone only with its node, since nodesmith does not move single pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate, quiet_since
from nodesmith.decisions.disruption.proposals import Blocker, Proposal
from nodesmith.decisions.disruption.search.judgement import proposal
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.disruption.simulation.simulation import Trial
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.static import left_of, planned
from nodesmith.errors import Rejected
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import NODES, NodePool
from nodesmith.model.ledger.moves import Reason

_NEVER = datetime.min.replace(tzinfo=UTC)
QUIET_BEFORE_REBALANCING = timedelta(hours=1)
"""How long a node must have had no pod events before it is disrupted for the sake of zones."""


def remove_empty(empty: Iterable[Candidate], under_way: Pass) -> None:
    """Propose to remove as many empty nodes as budgets allow, the most expensive first."""
    order = sorted(empty, key=lambda one: (-one.price_hourly_usd, one.name))
    for one in under_way.allowed.within(order, Reason.EMPTY):
        under_way.accept([one], under_way.emptied([one]), None)
    under_way.note_budget(order, Reason.EMPTY)


def renew(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to replace drifted nodes as far as budgets allow, leaving half of the steps for consolidation.

    Nodes without pods come first, then those whose drift is oldest. Nodes of a static NodePool are replaced one by one,
    whatever runs on them: it keeps as many as its replicas.
    """
    reserve = under_way.left // 2
    order = sorted(
        (one for one in candidates if one.name in under_way.drift and under_way.is_free(one)),
        key=lambda one: (
            bool(one.pods),
            looked_at.get(one.name, _NEVER),
            one.claim.drifted_at or under_way.inputs.now,
            one.name,
        ),
    )
    static: dict[str, list[Candidate]] = defaultdict(list)
    for one in order:
        if under_way.left <= reserve:
            break
        if not under_way.is_free(one) or not under_way.allowed.within([one], Reason.DRIFTED):
            continue
        waits = under_way.backing_off(one, Reason.DRIFTED)
        if waits is not None:
            under_way.blocked[one.name] = waits
            continue
        if one.pool.is_static:
            if not under_way.is_promised(one):
                static[one.pool.name].append(one)
            continue
        under_way.seen.append(one.name)
        found, trial = renewed(one, under_way)
        if isinstance(found, Proposal):
            under_way.accept([one], found, trial)
        else:
            under_way.blocked[one.name] = _unplaced(one, found)
    for mine in static.values():
        _renew_static(mine, under_way)
    under_way.note_budget(order, Reason.DRIFTED)


def renewed(one: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that replaces a drifted node, or the reason why there is none, and the trial."""
    trial = under_way.try_without([one])
    if trial.displaced:
        why = f"it has drifted ({under_way.drift[one.name]}), and pod {trial.displaced[0]} would have no node"
        return f"{why}: {trial.split}" if trial.split else why, trial
    return _drifted(one, trial, trial.nodes, under_way), trial


def static_renewals(mine: Sequence[Candidate], under_way: Pass) -> list[Proposal] | str:
    """Return the moves that replace nodes of a static NodePool one by one, as its limits allow, or why there are none.

    If the NodePool has more nodes than replicas, there are none, since it is unknown which of them will be removed.
    """
    pool, inputs = mine[0].pool, under_way.inputs
    there = [c for c in inputs.ledger.claims if c.nodepool == pool.name and c.phase is not Phase.GIVEN_UP]
    moving = inputs.ledger.replacements
    serving = sum(not claim.is_ending and claim.name not in moving for claim in there)
    if serving > (pool.replicas or 0):
        return f"NodePool {pool.name} has {serving} nodes, but replicas is {pool.replicas}: surplus nodes go first"
    number = min(len(mine), _headroom(pool, len(there)))
    if number <= 0:
        return f"the limits of NodePool {pool.name} allow no additional node"
    going = {one.name for one in mine[:number]}
    staying = [claim for claim in there if claim.name not in going]
    try:
        nodes = list(planned(pool, number, staying, inputs, left_of(inputs)))
    except Rejected as error:
        return str(error)
    return [_drifted(one, None, [node], under_way) for one, node in zip(mine, nodes, strict=False)]


def _renew_static(mine: Sequence[Candidate], under_way: Pass) -> None:
    chosen = under_way.allowed.within(mine, Reason.DRIFTED)
    found = static_renewals(chosen, under_way) if chosen else []
    if isinstance(found, str):
        under_way.blocked.update({one.name: _unplaced(one, found) for one in chosen})
        return
    for one, move in zip(chosen, found, strict=False):
        under_way.accept([one], move, None)


def _headroom(pool: NodePool, nodes: int) -> int:
    return pool.limits[NODES] - nodes if NODES in pool.limits else nodes


def _drifted(one: Candidate, trial: Trial | None, nodes: Sequence[PlannedNode], under_way: Pass) -> Proposal:
    bought = fsum(node.price_hourly_usd + node.surcharge_hourly_usd for node in nodes)
    saving = one.price_hourly_usd - bought
    return proposal(Reason.DRIFTED, [one], trial, nodes, saving, 0.0, under_way.drift[one.name])


def _unplaced(one: Candidate, why: str) -> Blocker:
    return Blocker("Unreplaceable", f"NodeClaim/{one.name}", why)


def rebalance(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to move unbalanced nodes as far as budgets allow, leaving half of the steps for consolidation.

    The nodes with the most excess pods come first. Of a workload, one node moves at a time, since the arrival of its
    pods determines what is left to do. Such moves may cost money, so the pods must have been quiet for an hour:
    workloads that come and go balance themselves.
    """
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
    is_quiet = under_way.inputs.now - quiet_since(one.claim, one.node) >= QUIET_BEFORE_REBALANCING
    return is_quiet and under_way.backing_off(one, Reason.UNBALANCED) is None
