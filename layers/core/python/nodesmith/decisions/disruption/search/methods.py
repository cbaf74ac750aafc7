"""The methods of disruption that examine single nodes: emptiness, replacement of drifted nodes, and rebalancing.

Each node gets a separate move. If a drifted node cannot be replaced, because a pod would have no node or the NodePool
may not buy, the other nodes are not affected. Rebalancing moves nodes with pods in excess in their zone, if their
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
from nodesmith.decisions.provisioning.nodepools.static import left_of, planned
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.errors import Rejected
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import NODES, NodePool
from nodesmith.model.ledger.moves import Reason

_NEVER = datetime.min.replace(tzinfo=UTC)
QUIET_BEFORE_REBALANCING = timedelta(hours=1)
"""How long a node must have had no pod events before it is disrupted for the sake of zones."""


def remove_empty(empty: Iterable[Candidate], under_way: Pass) -> None:
    """Propose to remove as many empty nodes as budgets allow, the most expensive first."""
    order = sorted(empty, key=lambda candidate: (-candidate.price_hourly_usd, candidate.name))
    for candidate in under_way.allowed.within(order, Reason.EMPTY):
        under_way.accept([candidate], under_way.removal_of_empty([candidate]), None)
    under_way.note_budget(order, Reason.EMPTY)


def renew(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to replace drifted nodes as far as budgets allow, leaving half of the steps for consolidation.

    Nodes without pods come first, then nodes with the oldest drift. Nodes of a static NodePool are replaced one by one,
    whatever runs on them, so that it keeps as many nodes as its replicas.
    """
    reserve = under_way.steps_left // 2
    order = sorted(
        (c for c in candidates if c.name in under_way.drift and under_way.is_free(c)),
        key=lambda c: (
            bool(c.pods),
            looked_at.get(c.name, _NEVER),
            c.claim.drifted_at or under_way.inputs.now,
            c.name,
        ),
    )
    static: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in order:
        if under_way.steps_left <= reserve:
            break
        if not under_way.is_free(candidate) or not under_way.allowed.within([candidate], Reason.DRIFTED):
            continue
        waits = under_way.backing_off(candidate, Reason.DRIFTED)
        if waits is not None:
            under_way.blocked[candidate.name] = waits
            continue
        if candidate.pool.is_static:
            if not under_way.is_expecting_pods(candidate):
                static[candidate.pool.name].append(candidate)
            continue
        under_way.examined.append(candidate.name)
        result, trial = renewed(candidate, under_way)
        if isinstance(result, Proposal):
            under_way.accept([candidate], result, trial)
        else:
            under_way.blocked[candidate.name] = _unplaced(candidate, result)
    for drifted in static.values():
        _renew_static(drifted, under_way)
    under_way.note_budget(order, Reason.DRIFTED)


def renewed(candidate: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that replaces a drifted node, or the reason why there is none, and the trial."""
    trial = under_way.try_without([candidate])
    if trial.displaced:
        return f"it has drifted ({under_way.drift[candidate.name]}), and {trial.refusal}", trial
    return _drifted(candidate, trial, trial.nodes, under_way), trial


def static_renewals(sources: Sequence[Candidate], under_way: Pass) -> list[Proposal] | str:
    """Return the moves that replace nodes of a static NodePool one by one, as its limits allow, or why there are none.

    If the NodePool has more nodes than replicas, there is no move, since it is unknown which nodes will be removed.
    """
    pool, inputs = sources[0].pool, under_way.inputs
    claims = [c for c in inputs.ledger.claims if c.nodepool == pool.name and c.phase is not Phase.GIVEN_UP]
    moving = inputs.ledger.replacements
    serving = sum(not claim.is_ending and claim.name not in moving for claim in claims)
    if serving > (pool.replicas or 0):
        return f"NodePool {pool.name} has {serving} nodes, but replicas is {pool.replicas}: surplus nodes go first"
    number = min(len(sources), _headroom(pool, len(claims)))
    if number <= 0:
        return f"the limits of NodePool {pool.name} allow no additional node"
    going = {candidate.name for candidate in sources[:number]}
    staying = [claim for claim in claims if claim.name not in going]
    try:
        nodes = list(planned(pool, number, staying, inputs, left_of(inputs, under_way.reserved)))
    except Rejected as error:
        return str(error)
    return [_drifted(source, None, [node], under_way) for source, node in zip(sources, nodes, strict=False)]


def _renew_static(candidates: Sequence[Candidate], under_way: Pass) -> None:
    chosen = under_way.allowed.within(candidates, Reason.DRIFTED)
    proposals = static_renewals(chosen, under_way) if chosen else []
    if isinstance(proposals, str):
        under_way.blocked.update({candidate.name: _unplaced(candidate, proposals) for candidate in chosen})
        return
    for candidate, move in zip(chosen, proposals, strict=False):
        under_way.accept([candidate], move, None)


def _headroom(pool: NodePool, nodes: int) -> int:
    return pool.limits[NODES] - nodes if NODES in pool.limits else nodes


def _drifted(
    source: Candidate, trial: Trial | None, nodes: Sequence[PlannedNode], under_way: Pass
) -> Proposal:
    replacement_price = fsum(node.price_hourly_usd + node.surcharge_hourly_usd for node in nodes)
    saving = source.price_hourly_usd - replacement_price
    return proposal(Reason.DRIFTED, [source], trial, nodes, saving, 0.0, str(under_way.drift[source.name]))


def _unplaced(candidate: Candidate, message: str) -> Blocker:
    return Blocker("Unreplaceable", f"NodeClaim/{candidate.name}", message)


def rebalance(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to move unbalanced nodes as far as budgets allow, leaving half of the steps for consolidation.

    The nodes with the most excess pods come first. For each workload, one node moves at a time, since the new zones of
    its pods determine which moves are still needed. Such moves may cost money, so the pods must have been quiet for an
    hour: workloads that come and go balance themselves.
    """
    zones = under_way.zones
    if zones is None:
        return
    reserve = under_way.steps_left // 2
    surplus = {c: zones.surplus(c) for c in candidates if may_rebalance(c, under_way)}
    order = sorted(
        (candidate for candidate in surplus if surplus[candidate]),
        key=lambda c: (looked_at.get(c.name, _NEVER), -surplus[c], c.name),
    )
    for candidate in order:
        if under_way.steps_left <= reserve:
            break
        if not zones.surplus(candidate) or not under_way.allowed.within([candidate], Reason.UNBALANCED):
            continue
        result, trial = rebalanced(candidate, under_way)
        if isinstance(result, Proposal):
            under_way.accept([candidate], result, trial)
    under_way.note_budget(order, Reason.UNBALANCED)


def rebalanced(candidate: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that spreads a node's pods over zones, or the reason why there is none, and the trial."""
    trial = under_way.try_without([candidate])
    return under_way.judge.rebalancing([candidate], trial), trial


def may_rebalance(candidate: Candidate, under_way: Pass) -> bool:
    """Return whether a node may be disrupted for the sake of zones now."""
    if not candidate.pool.disruption.rebalances_zones or not under_way.is_free(candidate):
        return False
    is_quiet = under_way.inputs.now - quiet_since(candidate.claim, candidate.node) >= QUIET_BEFORE_REBALANCING
    return is_quiet and under_way.backing_off(candidate, Reason.UNBALANCED) is None
