"""The search for nodes to remove now, and for their replacements: a pure function with the same result everywhere.

A pass examines empty nodes first, then drifted ones. Then come nodes with pods that are unbalanced over zones, if their
NodePool enables rebalancing, and last the nodes whose pods fit on fewer or cheaper nodes. The nodes examined longest
ago come first, so that the next pass starts with the nodes that this one had no time for.

The record of a search, or of a validation, suffices to explain it and to replay it. `next_change` and `next_search`
return when time alone, without any change in the cluster, lets a move continue or lets a search find other moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.budgets import opens_at
from nodesmith.decisions.disruption.candidates import Candidate, CandidateSelection, quiet_since
from nodesmith.decisions.disruption.drift import TYPE_MISSED_AFTER
from nodesmith.decisions.disruption.moves import waits_until
from nodesmith.decisions.disruption.proposals import Proposal, Proposals
from nodesmith.decisions.disruption.search.consolidation import consolidate
from nodesmith.decisions.disruption.search.methods import (
    QUIET_BEFORE_REBALANCING,
    rebalance,
    rebalanced,
    remove_empty,
    renew,
    renewed,
    static_renewals,
)
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.disruption.simulation.simulation import Trial
from nodesmith.decisions.disruption.worth import worth_more_from
from nodesmith.decisions.provisioning.buffers.resolutions import next_window
from nodesmith.decisions.provisioning.buffers.room import with_room_taken
from nodesmith.decisions.provisioning.plan import (
    Inputs,
    Plan,
    inputs_of,
    node_item,
    plan_item,
    record_header,
)
from nodesmith.decisions.termination.evictions import protected_until
from nodesmith.model.apimachinery.frozen import FrozenMap, canonical
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.disruption import WHEN_EMPTY
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason
from nodesmith.model.snapshot import Snapshot

DEFAULT_STEPS = 20_000
"""The number of pods that one pass places in trials: about ten seconds of work in a large fleet."""
_NOTHING: Mapping[str, datetime] = FrozenMap()
Timed = Callable[[Reason], AbstractContextManager[None]]
_TEMPORARY = frozenset({"Ending", "Nominated", "PodDisruptionBudget"})
"""Rules that do not stop a move once its replacements are ready: they apply only for a moment, or to the move itself.
"""


def _untimed(_: Reason) -> AbstractContextManager[None]:
    return nullcontext()


def propose(
    inputs: Inputs,
    looked_at: Mapping[str, datetime] = _NOTHING,
    *,
    steps: int = DEFAULT_STEPS,
    timed: Timed = _untimed,
) -> Proposals:
    """Search for moves once. `looked_at` is when each claim was last examined, by name, from the previous pass.

    `timed` returns a context manager that measures the search for moves of one reason; the first one includes the
    survey.
    """
    with timed(Reason.EMPTY):
        under_way = Pass(with_room_taken(inputs), steps)
        consolidatable = under_way.consolidatable()
        empty = [candidate for candidate in consolidatable if not candidate.pods]
        remove_empty(empty, under_way)
    with timed(Reason.DRIFTED):
        renew(under_way.survey.candidates, looked_at, under_way)
    with timed(Reason.UNBALANCED):
        rebalance(consolidatable, looked_at, under_way)
    with timed(Reason.UNDERUTILIZED):
        remaining = [
            candidate
            for candidate in consolidatable
            if candidate.pods and candidate.name not in under_way.removed
        ]
        consolidate(remaining, looked_at, under_way)
    eligible = {
        Reason.EMPTY: len(empty),
        Reason.DRIFTED: sum(candidate.name in under_way.drift for candidate in under_way.survey.candidates),
        Reason.UNDERUTILIZED: len(consolidatable) - len(empty),
    }
    return replace(under_way.outcome(looked_at), eligible=eligible)


def look_again(moves: Sequence[Move], inputs: Inputs) -> dict[str, Proposal | str]:
    """Validate proposed moves with tainted sources, one after the other: each uses the room that earlier ones leave.

    Return by move id the proposal that would be made now for the same sources, or a sentence that says why there is
    none. Empty nodes that have received pods drop out of their move. For each static NodePool, one move is validated,
    and the others are left out until later.
    """
    under_way = Pass(
        with_room_taken(_before(moves, inputs)),
        DEFAULT_STEPS,
        [name for move in moves for name in move.sources],
    )
    candidates = {candidate.name: candidate for candidate in under_way.survey.candidates}
    results: dict[str, Proposal | str] = {}
    static: set[str] = set()
    for move in moves:
        pools = {
            candidates[name].pool.name
            for name in move.sources
            if name in candidates and candidates[name].pool.is_static
        }
        if not pools & static:
            results[move.id] = _validated(move, candidates, under_way)
            static |= pools
    return results


def _validated(move: Move, candidates: Mapping[str, Candidate], under_way: Pass) -> Proposal | str:
    sources = [candidates[name] for name in move.sources if name in candidates]
    missing = next((name for name in move.sources if name not in candidates), None)
    if missing is not None and (move.reason is not Reason.EMPTY or not sources):
        blocker = under_way.blocked.get(missing)
        return f"{missing}: {blocker.message if blocker else 'it is gone'}"
    if move.reason is Reason.EMPTY:
        return _still_empty(sources, under_way)
    refusals = under_way.allowed.budget_blockers(sources, move.reason)
    if refusals:
        return next(iter(refusals.values())).message
    if move.reason is Reason.DRIFTED:
        return _still_drifted(sources[0], under_way)
    obstacle = _blocked(sources, under_way)
    if obstacle:
        return obstacle
    if move.reason is Reason.UNBALANCED:
        result, trial = rebalanced(sources[0], under_way)
        return _accepted(sources, result, trial, under_way)
    trial = under_way.try_without(sources)
    return _accepted(sources, under_way.judge.consolidation(sources, trial), trial, under_way)


def may_end(move: Move, inputs: Inputs) -> str:
    """Return what keeps a move's sources from ending, now that its replacements are ready; empty if nothing does."""
    before = _before([move], inputs)
    selection = CandidateSelection(
        with_room_taken(before) if move.reason is Reason.EMPTY else before, only=move.sources
    )
    candidates = {candidate.name: candidate for candidate in selection.candidates}
    unschedulable = {
        f"PodDisruptionBudget/{budget.key}" for budget in inputs.snapshot.budgets if budget.never_allows
    }
    for name in move.sources:
        blocker = selection.blocked.get(name)
        if blocker is None and name in candidates and move.reason is not Reason.DRIFTED:
            blocker = candidates[name].held
        if blocker is not None and (blocker.rule not in _TEMPORARY or blocker.object in unschedulable):
            return f"{name}: {blocker.message}"
        if name in candidates and move.reason is Reason.EMPTY and candidates[name].pods:
            return f"{name}: pod {candidates[name].pods[0].key} now runs on it"
    return ""


def _still_empty(sources: Sequence[Candidate], under_way: Pass) -> Proposal | str:
    empty = [
        candidate for candidate in sources if not candidate.pods and under_way.blocker(candidate) is None
    ]
    if not empty:
        pods = [pod.key for candidate in sources for pod in candidate.pods]
        return f"pod {pods[0]} now runs on it" if pods else _blocked(sources, under_way)
    allowed = under_way.allowed.within(empty, Reason.EMPTY)
    if not allowed:
        return next(iter(under_way.allowed.budget_blockers(empty, Reason.EMPTY).values())).message
    return _accepted(allowed, under_way.removal_of_empty(allowed), None, under_way)


def _still_drifted(candidate: Candidate, under_way: Pass) -> Proposal | str:
    if candidate.name not in under_way.drift:
        return f"{candidate.name}: it has not drifted any more"
    if candidate.pool.is_static:
        renewals = static_renewals([candidate], under_way)
        return _accepted([candidate], renewals if isinstance(renewals, str) else renewals[0], None, under_way)
    result, trial = renewed(candidate, under_way)
    return _accepted([candidate], result, trial, under_way)


def _accepted(
    sources: Sequence[Candidate], result: Proposal | str, trial: Trial | None, under_way: Pass
) -> Proposal | str:
    if isinstance(result, Proposal):
        under_way.accept(sources, result, trial)
    return result


def _blocked(sources: Iterable[Candidate], under_way: Pass) -> str:
    for candidate in sources:
        blocker = under_way.blocker(candidate)
        if blocker is not None:
            return f"{candidate.name}: {blocker.message}"
    return ""


def _before(moves: Sequence[Move], inputs: Inputs) -> Inputs:
    """Return the inputs as if these moves had not been proposed, and their sources' Nodes had not been tainted."""
    ids = {move.id for move in moves}
    others = tuple(move for move in inputs.ledger.moves if move.id not in ids)
    source_names = frozenset(name for move in moves for name in move.sources)
    sources = (inputs.snapshot.node_of(claim) for claim in inputs.ledger.claims if claim.name in source_names)
    names = {node.name for node in sources if node is not None}
    nodes = tuple(
        replace(n, taints=tuple(t for t in n.taints if t.identity != DISRUPTED.identity))
        if n.name in names
        else n
        for n in inputs.snapshot.nodes
    )
    snapshot = replace(inputs.snapshot, nodes=nodes)
    return replace(inputs, snapshot=snapshot, ledger=replace(inputs.ledger, moves=others))


DISRUPTION = "disruption"


def record(
    inputs: Inputs,
    proposals: Sequence[Proposal],
    snapshot_digest: str,
    *,
    looked_at: Mapping[str, datetime] | None = None,
    again: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the record of `proposals`, made by a search or by a validation.

    A search has `looked_at`, the time at which each claim was last examined; a validation has `again`, the ids of its
    moves.
    """
    times = {name: at.isoformat() for name, at in sorted((looked_at or {}).items())}
    return {
        **record_header(DISRUPTION, inputs, snapshot_digest),
        "again": list(again),
        "lookedAt": times,
        "plan": moves_item(proposals, is_bought=bool(again)),
        "durationsMs": {},
    }


def replay(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> bytes:
    """Decide again, and return the result in the same canonical bytes as `canonical(written["plan"])`."""
    inputs = inputs_of(written, snapshot, catalog)
    if written["again"]:
        moves = {move.id: move for move in inputs.ledger.moves}
        results = look_again([moves[id_] for id_ in written["again"]], inputs)
        standing = [result for result in results.values() if isinstance(result, Proposal)]
        return canonical(moves_item(standing, is_bought=True))
    looked_at = {name: datetime.fromisoformat(at) for name, at in written["lookedAt"].items()}
    return canonical(moves_item(propose(inputs, looked_at).proposals, is_bought=False))


def moves_item(proposals: Sequence[Proposal], *, is_bought: bool) -> dict[str, Any]:
    """Return proposals as a plan with an additional key `moves`; `nodes` has their replacements if these are bought."""
    nodes = tuple(node for proposal in proposals for node in proposal.replacements) if is_bought else ()
    placed: dict[str, list[str]] = {}
    for pod, place in sorted(pair for proposal in proposals for pair in proposal.destinations.items()):
        placed.setdefault(place, []).append(pod)
    new_names = {node.claim.name for proposal in proposals for node in proposal.replacements}
    existing = {name: tuple(pods) for name, pods in placed.items() if name not in new_names}
    return {
        **plan_item(Plan(nodes=nodes, placed=existing)),
        "moves": [_move_item(proposal) for proposal in proposals],
    }


def _move_item(proposal: Proposal) -> dict[str, Any]:
    return {
        "reason": proposal.reason.value,
        "sources": list(proposal.sources),
        "replacements": [node_item(node) for node in proposal.replacements],
        "savingHourlyUsd": round(proposal.saving_hourly_usd, 6),
        "evictionCost": round(proposal.eviction_cost, 6),
        "worthUsd": round(proposal.worth_usd, 6),
        "message": proposal.message,
    }


LATEST = timedelta(minutes=5)
"""The longest time between searches, as in Karpenter: changes of prices and of nodes' ages are not predicted here."""


def next_change(inputs: Inputs) -> datetime | None:
    """Return the first predictable moment at which time alone lets a move continue; None if only events can.

    Such moments are the end of a pause, of a wait (consolidateAfter, back-offs, abandoned moves), of a pod's
    `karpenter.sh/do-not-disrupt` duration, and of the window of a budget's or a CapacityBuffer's schedule. So is the
    time at which a NodePool's rate allows another disruption.
    """
    pools = parsed_nodepools(inputs.snapshot.nodepools)
    window = [*filter(None, [next_window(inputs.snapshot, inputs.now)])]
    pause = inputs.ledger.paused
    window = [*window, *((pause.until,) if pause and pause.until else ())]
    moments = (*_limits(pools, inputs), *_nodes(pools, inputs), *_backoffs(inputs.ledger), *window)
    return min((at for at in moments if at > inputs.now), default=None)


def next_search(inputs: Inputs) -> datetime | None:
    """Return the first moment after now at which a search that found nothing may find something; None if there is none.

    This adds some moments to `next_change`. The worth of a move grows while its nodes are quiet, up to a day, so there
    is a search every few minutes until then. The risk of spot interruptions decays, which makes capacity cheaper. A
    claim becomes so old that its instance type may count as missing from the catalogue.
    """
    ledger, pools = inputs.ledger, parsed_nodepools(inputs.snapshot.nodepools)
    hours = inputs.settings.interruption_cost_hours
    moments = [
        next_change(inputs),
        *(risk.cheaper_from(inputs.now, hours) for risk in ledger.risks.values()),
        *(claim.created_at + TYPE_MISSED_AFTER for claim in ledger.claims),
        *_worth_more(pools, inputs),
        *(backoff.until for backoff in ledger.subnet_backoffs.values()),
        *(backoff.until for health in ledger.health.values() for backoff in health.offerings.values()),
        *(health.backoff.until for health in ledger.health.values() if health.backoff),
        *(end for health in ledger.health.values() for end in (health.launches.until, health.moves.until)),
    ]
    return first_after(inputs.now, moments)


def _worth_more(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    """Yield when a move of a node may be worth more than it is now."""
    occupied = {pod.node for pod in inputs.snapshot.pods if pod.shape.moves}
    for claim, node, pool in _served(pools, inputs):
        if node.name in occupied and pool.disruption.consolidation_policy != WHEN_EMPTY:
            yield from filter(None, [worth_more_from(quiet_since(claim, node), inputs.now, LATEST)])


def _limits(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    yield from filter(None, (opens_at(pool, inputs.ledger, inputs.now) for pool in pools.values()))


def _nodes(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[datetime]:
    """Yield when nodes have been quiet for long enough, and when their pods may be disrupted."""
    for claim, node, pool in _served(pools, inputs):
        since, after = quiet_since(claim, node), pool.disruption.consolidate_after_seconds
        yield since + timedelta(seconds=after or 0)
        if pool.disruption.rebalances_zones:
            yield since + QUIET_BEFORE_REBALANCING
    initialized = (c for c in inputs.ledger.claims if c.phase is Phase.INITIALIZED and c.nodepool in pools)
    served = {node.name for node in filter(None, map(inputs.snapshot.node_of, initialized))}
    protected = (pod for pod in inputs.snapshot.pods if pod.node in served and not pod.deleting)
    yield from filter(None, map(protected_until, protected))


def _served(pools: Mapping[str, NodePool], inputs: Inputs) -> Iterator[tuple[NodeClaim, Node, NodePool]]:
    """Yield the nodes that may be consolidated once they have been quiet for long enough."""
    for claim in inputs.ledger.claims:
        node, pool = inputs.snapshot.node_of(claim), pools.get(claim.nodepool)
        if node is None or pool is None or claim.phase is not Phase.INITIALIZED:
            continue
        if pool.disruption.consolidate_after_seconds is not None and not pool.is_static:
            yield claim, node, pool


def _backoffs(ledger: Ledger) -> Iterator[datetime]:
    for backoffs in (ledger.unavailable, ledger.nodepool_backoffs, ledger.move_backoffs):
        yield from (backoff.until for backoff in backoffs.values())
    yield from filter(None, map(waits_until, ledger.moves))
