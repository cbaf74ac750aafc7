"""The search: which nodes to take away now, and what to have in their stead. Pure, and the same on any machine.

A pass goes through empty nodes, then drifted ones, then those whose pods would do with less. For the last it tries sets
of nodes, large ones first, for packing is a matter of the whole: any number of nodes may become any other number. What
was looked at longest ago comes first, so that whatever a pass has no time for is the first thing the next one does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import fsum

from nodesmith.decisions.disruption.allowing import Allowed
from nodesmith.decisions.disruption.candidates import Candidate, Survey, consolidation_blocker
from nodesmith.decisions.disruption.judging import Judge, proposal
from nodesmith.decisions.disruption.proposals import Blocker, Proposal, Proposals
from nodesmith.decisions.disruption.simulation import Fleet, Trial
from nodesmith.decisions.disruption.worth import totals, worth_usd
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.model.frozen import FrozenMap
from nodesmith.model.moves import Move, Reason
from nodesmith.model.taints import DISRUPTED

DEFAULT_STEPS = 20_000
"""Pods that one pass places in trials, about ten seconds' work in a large fleet."""
_LARGEST = 24
"""nodes that one move takes away at most: what replaces them is written in one transaction"""
_NEVER = datetime.min.replace(tzinfo=UTC)
_NOTHING: Mapping[str, datetime] = FrozenMap()


def propose(
    inputs: Inputs, looked_at: Mapping[str, datetime] = _NOTHING, *, steps: int = DEFAULT_STEPS
) -> Proposals:
    """Look for moves once. `looked_at` is when each claim (by name) was last looked at, as the last pass gave it."""
    moving = _moving(inputs.ledger.moves)
    survey = Survey(inputs, moving)
    search = _Search(inputs, survey, moving, steps)
    consolidatable = search.consolidatable()
    search.let_go_of_empty([one for one in consolidatable if not one.pods])
    order = sorted(
        (one for one in consolidatable if one.pods),
        key=lambda one: (looked_at.get(one.name, _NEVER), -_ratio(one), one.name),
    )
    search.consolidate(order)
    return search.outcome(looked_at)


def look_again(move: Move, inputs: Inputs) -> Proposal | str:
    """Look again at a proposed move whose sources are tainted by now.

    Gives the proposal as it would be made now for the same sources, or why it is not to be, in a sentence.
    """
    others = tuple(other for other in inputs.ledger.moves if other.id != move.id)
    seen = _untainted(replace(inputs, ledger=replace(inputs.ledger, moves=others)), move.sources)
    moving = _moving(others)
    survey = Survey(seen, moving)
    found = {one.name: one for one in survey.candidates}
    missing = next((name for name in move.sources if name not in found), None)
    if missing is not None:
        blocker = survey.blocked.get(missing)
        return f"{missing}: {blocker.message}" if blocker else f"{missing}: it is gone"
    sources = [found[name] for name in move.sources]
    return _Search(seen, survey, moving, DEFAULT_STEPS).again(sources, move.reason)


def may_end(move: Move, inputs: Inputs) -> str:
    """Say what stands in the way of ending a move's sources now that what replaces them is ready; empty for nothing."""
    others = tuple(other for other in inputs.ledger.moves if other.id != move.id)
    survey = Survey(_untainted(replace(inputs, ledger=replace(inputs.ledger, moves=others)), move.sources))
    found = {one.name: one for one in survey.candidates}
    for name in move.sources:
        blocker = survey.blocked.get(name)
        if blocker is not None and blocker.rule not in _PASSING:
            return f"{name}: {blocker.message}"
        if name in found and move.reason is Reason.EMPTY and found[name].pods:
            return f"{name}: pod {found[name].pods[0].key} has come to it"
    return ""


_PASSING = frozenset({"Ending", "Nominated", "PodDisruptionBudget"})
"""Rules that are no reason to turn back once replacements are ready: what they say passes, or is so by now."""


class _Search:
    """One pass, under way."""

    def __init__(self, inputs: Inputs, survey: Survey, moving: Collection[str], steps: int) -> None:
        self._inputs, self._survey = inputs, survey
        self._allowed = Allowed(inputs, moving)
        self._judge = Judge(totals(survey.candidates), inputs.now)
        self._fleet = Fleet(inputs, survey.pools, moving)
        self._left = self._most = steps
        self._blocked = dict(survey.blocked)
        self._found: list[Proposal] = []
        self._seen: list[str] = []

    def consolidatable(self) -> list[Candidate]:
        """Give the candidates that consolidation may look at; note why it may not at the others."""
        found: list[Candidate] = []
        for one in self._survey.candidates:
            blocker = self._blocker(one)
            if blocker is None:
                found.append(one)
            else:
                self._blocked[one.name] = blocker
        return found

    def _blocker(self, one: Candidate) -> Blocker | None:
        if one.node.name in self._fleet.promised:
            return Blocker(
                "Nominated", f"Node/{one.node.name}", "pods that wait for a node will find room on it"
            )
        return consolidation_blocker(one, self._inputs.now)

    def let_go_of_empty(self, empty: Iterable[Candidate]) -> None:
        """Propose that nodes without pods go, each for itself, the dearest first, as far as budgets allow."""
        order = sorted(empty, key=lambda one: (-one.price_hourly_usd, one.name))
        for one in self._allowed.within(order, Reason.EMPTY):
            self._accept([one], self._emptied([one]), None)
        self._note_budget(order, Reason.EMPTY)

    def _emptied(self, sources: Sequence[Candidate]) -> Proposal:
        saving = fsum(source.price_hourly_usd for source in sources)
        worth = worth_usd(sources, 0.0, self._judge.known, self._inputs.now)
        return proposal(Reason.EMPTY, sources, None, (), saving, worth)

    def consolidate(self, order: Sequence[Candidate]) -> None:
        """Look for sets of nodes that would do with less, as long as there are steps left."""
        waiting = list(order)
        while waiting and self._left > 0:
            window = self._allowed.within(waiting, Reason.UNDERUTILIZED, _LARGEST)
            if not window:
                self._note_budget(waiting, Reason.UNDERUTILIZED)
                break
            done = self._best_of(window) or window
            names = {one.name for one in done}
            self._seen += [one.name for one in done]
            waiting = [one for one in waiting if one.name not in names]
        if self._left > 0:
            self._seen += [one.name for one in waiting]

    def _best_of(self, window: Sequence[Candidate]) -> list[Candidate]:
        """Accept the best move of the first so many nodes, all of them, half of them, and so on; give its sources."""
        best: tuple[Proposal, list[Candidate], Trial] | None = None
        size = len(window)
        while size and self._left > 0:
            sources = list(window[:size])
            trial = self._try(sources)
            found = self._judge.consolidation(sources, trial)
            if isinstance(found, Proposal) and (best is None or found.worth_usd > best[0].worth_usd):
                best = found, sources, trial
            size //= 2
        if best is None:
            return []
        self._accept(best[1], best[0], best[2])
        return best[1]

    def _try(self, sources: Sequence[Candidate]) -> Trial:
        self._left -= 1 + sum(len(source.pods) for source in sources)
        return self._fleet.try_without(sources, thorough=len(self._survey.candidates) <= _LARGEST)

    def _accept(self, sources: Sequence[Candidate], found: Proposal, trial: Trial | None) -> None:
        self._found.append(found)
        self._allowed.take(sources)
        self._fleet.settle(sources, trial)

    def _note_budget(self, candidates: Iterable[Candidate], reason: Reason) -> None:
        """Note of candidates that are left only because a budget allows no more that this is so."""
        chosen = {name for found in self._found for name in found.sources}
        for one in candidates:
            if one.name not in chosen and self._allowed.nodes(one.pool, reason) == 0:
                self._blocked[one.name] = _no_budget(one)

    def again(self, sources: Sequence[Candidate], reason: Reason) -> Proposal | str:
        """Give the proposal for these very sources, or why there is none."""
        if len(self._allowed.within(sources, reason)) < len(sources):
            return _no_budget(sources[0]).message
        for one in sources:
            blocker = self._blocker(one) if reason is not Reason.DRIFTED else None
            if blocker is not None:
                return f"{one.name}: {blocker.message}"
        if reason is Reason.EMPTY:
            pods = [pod.key for one in sources for pod in one.pods]
            return f"pod {pods[0]} has come" if pods else self._emptied(sources)
        return self._judge.consolidation(sources, self._try(sources))

    def outcome(self, looked_at: Mapping[str, datetime]) -> Proposals:
        """Give what the pass has come to."""
        there = {claim.name for claim in self._inputs.ledger.claims}
        times = {name: at for name, at in looked_at.items() if name in there}
        times.update(dict.fromkeys(self._seen, self._inputs.now))
        done = self._most - self._left
        return Proposals(tuple(self._found), dict(sorted(self._blocked.items())), times, done, self._left > 0)


def _no_budget(one: Candidate) -> Blocker:
    message = f"the disruption budgets of NodePool {one.pool.name} allow no more nodes to go for now"
    return Blocker("Budget", f"NodePool/{one.pool.name}", message)


def _moving(moves: Iterable[Move]) -> frozenset[str]:
    """Name the claims that moves under way take away or have bought."""
    return frozenset(n for move in moves if not move.is_over for n in (*move.sources, *move.replacements))


def _untainted(inputs: Inputs, names: Iterable[str]) -> Inputs:
    """Give inputs in which these claims' Nodes are not marked as disrupted."""
    mine = frozenset(names)
    providers = {claim.provider_id for claim in inputs.ledger.claims if claim.name in mine}
    nodes = tuple(
        replace(n, taints=tuple(t for t in n.taints if t != DISRUPTED)) if n.provider_id in providers else n
        for n in inputs.snapshot.nodes
    )
    return replace(inputs, snapshot=replace(inputs.snapshot, nodes=nodes))


def _ratio(one: Candidate) -> float:
    """Karpenter's order: the price that a node's pods, each at its cost of eviction, keep alive."""
    return one.price_hourly_usd / (1.0 + one.harm)
