"""The search: which nodes to take away now, and what to have in their stead. Pure, and the same on any machine.

A pass goes through empty nodes, then drifted ones, then those whose pods would do with less. What was looked at longest
ago comes first, so that whatever a pass has no time for is the first thing the next one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.disruption.candidates import Candidate, Survey
from nodesmith.decisions.disruption.consolidating import consolidate
from nodesmith.decisions.disruption.emptying import let_go
from nodesmith.decisions.disruption.passing import Pass, no_budget
from nodesmith.decisions.disruption.proposals import Proposal, Proposals
from nodesmith.decisions.disruption.renewing import renew, renewed, static_renewals
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.model.frozen import FrozenMap
from nodesmith.model.moves import Move, Reason
from nodesmith.model.taints import DISRUPTED

DEFAULT_STEPS = 20_000
"""Pods that one pass places in trials, about ten seconds' work in a large fleet."""
_NOTHING: Mapping[str, datetime] = FrozenMap()
_PASSING = frozenset({"Ending", "Nominated", "PodDisruptionBudget"})
"""Rules that are no reason to turn back once replacements are ready: what they say passes, or is so by now."""


def propose(
    inputs: Inputs, looked_at: Mapping[str, datetime] = _NOTHING, *, steps: int = DEFAULT_STEPS
) -> Proposals:
    """Look for moves once. `looked_at` is when each claim (by name) was last looked at, as the last pass gave it."""
    under_way = Pass(inputs, steps)
    consolidatable = under_way.consolidatable()
    let_go([one for one in consolidatable if not one.pods], under_way)
    renew(under_way.survey.candidates, looked_at, under_way)
    left = [one for one in consolidatable if one.pods and one.name not in under_way.gone]
    consolidate(left, looked_at, under_way)
    return under_way.outcome(looked_at)


def look_again(move: Move, inputs: Inputs) -> Proposal | str:
    """Look again at a proposed move whose sources are tainted by now.

    Gives the proposal as it would be made now for the same sources, or why it is not to be, in a sentence.
    """
    under_way = Pass(_before(move, inputs), DEFAULT_STEPS)
    found = {one.name: one for one in under_way.survey.candidates}
    missing = next((name for name in move.sources if name not in found), None)
    if missing is not None:
        blocker = under_way.blocked.get(missing)
        return f"{missing}: {blocker.message if blocker else 'it is gone'}"
    sources = [found[name] for name in move.sources]
    if len(under_way.allowed.within(sources, move.reason)) < len(sources):
        return no_budget(sources[0]).message
    match move.reason:
        case Reason.EMPTY:
            return _still_empty(sources, under_way)
        case Reason.DRIFTED:
            return _still_drifted(sources, under_way)
        case Reason.UNDERUTILIZED:
            return _blocked(sources, under_way) or under_way.judge.consolidation(
                sources, under_way.try_without(sources)
            )


def may_end(move: Move, inputs: Inputs) -> str:
    """Say what stands in the way of ending a move's sources now that what replaces them is ready; empty for nothing."""
    survey = Survey(_before(move, inputs))
    found = {one.name: one for one in survey.candidates}
    for name in move.sources:
        blocker = survey.blocked.get(name)
        if blocker is not None and blocker.rule not in _PASSING:
            return f"{name}: {blocker.message}"
        held = found[name].held if name in found and move.reason is not Reason.DRIFTED else None
        if held is not None and held.rule not in _PASSING:
            return f"{name}: {held.message}"
        if name in found and move.reason is Reason.EMPTY and found[name].pods:
            return f"{name}: pod {found[name].pods[0].key} has come to it"
    return ""


def _still_empty(sources: Sequence[Candidate], under_way: Pass) -> Proposal | str:
    pods = [pod.key for one in sources for pod in one.pods]
    if pods:
        return f"pod {pods[0]} has come"
    return _blocked(sources, under_way) or under_way.emptied(sources)


def _still_drifted(sources: Sequence[Candidate], under_way: Pass) -> Proposal | str:
    one = sources[0]
    if one.name not in under_way.drift:
        return f"{one.name}: it is what would be bought today"
    if one.pool.is_static:
        found = static_renewals(sources, under_way)
        return found if isinstance(found, str) else found[0]
    return renewed(one, under_way)[0]


def _blocked(sources: Iterable[Candidate], under_way: Pass) -> str:
    for one in sources:
        blocker = under_way.blocker(one)
        if blocker is not None:
            return f"{one.name}: {blocker.message}"
    return ""


def _before(move: Move, inputs: Inputs) -> Inputs:
    """Give inputs without a move: as if it had not been proposed, nor its sources' Nodes tainted for it."""
    moves = tuple(other for other in inputs.ledger.moves if other.id != move.id)
    mine = frozenset(move.sources)
    providers = {claim.provider_id for claim in inputs.ledger.claims if claim.name in mine}
    nodes = tuple(
        replace(n, taints=tuple(t for t in n.taints if t.identity != DISRUPTED.identity))
        if n.provider_id in providers
        else n
        for n in inputs.snapshot.nodes
    )
    snapshot = replace(inputs.snapshot, nodes=nodes)
    return replace(inputs, snapshot=snapshot, ledger=replace(inputs.ledger, moves=moves))
