"""The state of one pass of the search: the nodes examined, the disruptions still allowed, and the moves found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from math import fsum

from nodesmith.decisions.budgets import departed, remaining, strictest
from nodesmith.decisions.disruption.candidates import (
    Candidate,
    CandidateSelection,
    by_node,
    consolidation_blocker,
)
from nodesmith.decisions.disruption.costs import moving
from nodesmith.decisions.disruption.drift import drifting
from nodesmith.decisions.disruption.proposals import BUDGET, NOT_YET, Blocker, Proposal, Proposals
from nodesmith.decisions.disruption.search.judgement import Judge, proposal
from nodesmith.decisions.disruption.simulation.simulation import Fleet, Trial
from nodesmith.decisions.disruption.simulation.zones import Zones
from nodesmith.decisions.disruption.worth import LEAST_SAVING, totals, worth_usd
from nodesmith.decisions.packing import GOOD_ENOUGH
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.decisions.termination.evictions import Allowances, must_go
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, rebalances_zones
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import MoveKind, Reason

FEW = 24
"""The number of candidates up to which every trial is thorough."""


class Pass:
    """The state of one pass. `drift` has the reasons for drift by claim name; `steps_left` counts down to 0.

    `validated` are the claims of moves under validation. Their nodes are tainted, so they are no destinations. A
    validation packs as thoroughly as any purchase. In a search of a large fleet, a plan is `good_enough` if its price
    exceeds its lower bound by no more than the least saving. `fleet` is the class that makes trials.
    """

    def __init__(
        self, inputs: Inputs, steps: int, validated: Collection[str] = (), fleet: type[Fleet] = Fleet
    ) -> None:
        in_moves = inputs.ledger.sources | inputs.ledger.replacements
        self.inputs, self.survey = inputs, CandidateSelection(inputs, in_moves)
        self.drift = drifting(inputs.snapshot, inputs.ledger, inputs.catalog, inputs.now)
        self.allowed = Allowed(inputs)
        avoided = self.drift.keys() | set(validated)
        closed = {candidate.node.name for candidate in self.survey.candidates if candidate.name in avoided}
        self.fleet = fleet(inputs, self.survey.pools, in_moves, closed)
        self.zones = self._zones(again=bool(validated))
        self.judge = Judge(totals(self.survey), inputs.now, self.zones)
        self.steps_left = self._most = steps
        self.proposals: list[Proposal] = []
        self.blocked = dict(self.survey.blocked)
        self.needed: dict[str, str] = {}
        self.examined: list[str] = []
        self.removed: set[str] = set()
        self.destinations: set[str] = set()
        self.reserved: list[str] = []
        """the reservation of each replacement that is to run in one"""
        self._is_thorough = len(self.survey.candidates) <= FEW
        self.has_time = 2 * sum(len(candidate.pods) for candidate in self.survey.candidates) <= steps
        """whether steps suffice to examine every node twice"""
        self.good_enough = GOOD_ENOUGH if self._is_thorough or validated else 1 + LEAST_SAVING

    def _zones(self, *, again: bool) -> Zones | None:
        """Return the pods that spreads over zones count if any NodePool enables rebalancing, otherwise None."""
        return self.fleet.zones(again=again) if rebalances_zones(self.survey.pools.values()) else None

    def consolidatable(self) -> list[Candidate]:
        """Return the candidates that consolidation may examine, and note why it may not examine the others."""
        candidates: list[Candidate] = []
        for candidate in self.survey.candidates:
            blocker = self.blocker(candidate)
            if blocker is None and candidate.pods:
                blocker = self.backing_off(candidate, Reason.UNDERUTILIZED)
            if blocker is None:
                candidates.append(candidate)
            else:
                self.blocked[candidate.name] = blocker
        return candidates

    def blocker(self, candidate: Candidate) -> Blocker | None:
        """Return the reason why a candidate, empty or not, must not be consolidated now; None if it may be."""
        if self.is_expecting_pods(candidate):
            message = "pods that need a node will be placed on it"
            return Blocker("Nominated", f"Node/{candidate.node.name}", message)
        return consolidation_blocker(candidate, self.inputs.now)

    def backing_off(self, candidate: Candidate, reason: Reason) -> Blocker | None:
        """Return the back-off of a NodePool's moves for a reason; None if there is none.

        It applies after such moves failed because their replacements were not available.
        """
        backoff = self.inputs.ledger.move_backoffs.get(MoveKind(candidate.pool.name, reason.value))
        if backoff is None or not backoff.holds(self.inputs.now):
            return None
        count = max(1, backoff.failures)
        subject = f"{count} {'moves' if count > 1 else 'move'} of its NodePool for {reason}"
        message = (
            f"{subject} failed ({backoff.reason}): the next attempt is after {backoff.until:%H:%M:%S} UTC"
        )
        return Blocker("BackingOff", f"NodePool/{candidate.pool.name}", message)

    def is_expecting_pods(self, candidate: Candidate) -> bool:
        """Return whether pods that need a node will be placed on this one."""
        return candidate.node.name in self.fleet.promised

    def try_without(self, sources: Sequence[Candidate]) -> Trial:
        """Try to place the pods of these nodes elsewhere, and count the steps."""
        enough = self.good_enough
        trial = self.fleet.try_without(sources, thorough=self._is_thorough, good_enough=enough)
        self.steps_left -= 1 + trial.preference_modes * sum(len(source.pods) for source in sources)
        return trial

    def accept(self, sources: Sequence[Candidate], move: Proposal, trial: Trial | None) -> None:
        """Propose a move, and reserve all that it takes."""
        self.proposals.append(move)
        self.removed.update(move.sources)
        self.destinations.update(move.destinations.values())
        self.allowed.take(sources)
        self.fleet.settle(sources, trial)
        reserved = [id_ for node in move.replacements if (id_ := node.claim.labels.get(RESERVATION_ID))]
        self.reserved += reserved
        if trial is None and reserved:
            self.fleet.take_reserved(reserved)
        if self.zones is not None:
            self.zones.settle(sources, move.destinations, move.replacements)
            if move.reason is Reason.UNBALANCED:
                self.zones.wait_for(sources)

    def removal_of_empty(self, sources: Sequence[Candidate]) -> Proposal:
        """Return the move that removes nodes without pods."""
        saving = fsum(source.price_hourly_usd for source in sources)
        worth = worth_usd(sources, 0.0, self.judge.pool_totals, self.inputs.now)
        return proposal(Reason.EMPTY, sources, None, (), saving, worth)

    def is_free(self, candidate: Candidate) -> bool:
        """Return whether no proposed move takes a node or moves pods to it."""
        return candidate.name not in self.removed and candidate.node.name not in self.destinations

    def note_destination(self, candidate: Candidate) -> None:
        """Note that a candidate stays because pods of other nodes move to it."""
        self.examined.append(candidate.name)
        message = "pods of other nodes that are being removed will move to it"
        self.blocked.setdefault(candidate.name, Blocker("Nominated", f"Node/{candidate.node.name}", message))

    def note_budget(self, candidates: Iterable[Candidate], reason: Reason) -> None:
        """Note each candidate that stays only because a budget allows no more."""
        for candidate in candidates:
            if candidate.name not in self.removed:
                self.blocked.update(self.allowed.budget_blockers([candidate], reason))

    def outcome(self, looked_at: Mapping[str, datetime]) -> Proposals:
        """Return the result of the pass."""
        is_finished = self.steps_left > 0
        names = {claim.name for claim in self.inputs.ledger.claims if claim.phase is not Phase.GIVEN_UP}
        soon = {name for name, blocker in self.blocked.items() if blocker.rule == NOT_YET}
        examined = (names if is_finished else {*self.examined, *self.blocked, *self.removed}) - soon
        times = {name: at for name, at in looked_at.items() if name in names}
        times.update(dict.fromkeys(sorted(examined), min(self.inputs.now, self.inputs.snapshot.taken_at)))
        blocked = {name: self.blocked[name] for name in sorted(self.blocked.keys() - self.removed)}
        steps = self._most - self.steps_left
        needed = {
            name: self.needed[name] for name in sorted(self.needed.keys() - self.removed - blocked.keys())
        }
        return Proposals(tuple(self.proposals), blocked, times, steps, is_finished, needed=needed)


class Allowed:
    """The disruptions that are still allowed in addition to the moves in progress: fewer with each accepted move."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs, sources = inputs, inputs.ledger.sources
        self._leaving: list[NodeClaim] = [c for c in inputs.ledger.claims if c.name in sources]
        self._accepted: Counter[str] = Counter()
        self._node_allowances: dict[tuple[str, Reason], int | None] = {}
        self._departed: dict[str, int] = {}
        self._messages: dict[tuple[str, Reason], str] = {}
        self._evictions = Allowances(inputs.snapshot.budgets)
        self._count_leaving()

    def nodes(self, pool: NodePool, reason: Reason) -> int | None:
        """Return how many more nodes of a NodePool may be disrupted; None if there is no limit."""
        key = pool.name, reason
        if key not in self._node_allowances:
            self._node_allowances[key] = self._node_allowance(pool, reason)
        allowance = self._node_allowances[key]
        return None if allowance is None else max(0, allowance - self._accepted[pool.name])

    def _node_allowance(self, pool: NodePool, reason: Reason) -> int | None:
        """Evaluate a NodePool's budgets, with only its own claims."""
        inputs = self._inputs
        claims = tuple(claim for claim in inputs.ledger.claims if claim.nodepool == pool.name)
        leaving = [claim for claim in self._leaving if claim.nodepool == pool.name]
        ledger = replace(inputs.ledger, claims=claims)
        return remaining(pool, reason.budgeted, ledger, leaving, inputs.snapshot, inputs.now)

    def within(
        self, candidates: Iterable[Candidate], reason: Reason, limit: int | None = None
    ) -> list[Candidate]:
        """Return the candidates that budgets allow to disrupt together, in order, up to `limit`."""
        verdicts = self._verdicts(candidates, reason)
        return list(islice((candidate for candidate, keeper in verdicts if keeper is None), limit))

    def budget_blockers(self, candidates: Iterable[Candidate], reason: Reason) -> dict[str, Blocker]:
        """Return, for each candidate that `within` leaves out, the budget that keeps it."""
        return {
            candidate.name: self._pod_budget_blocker(keeper)
            if keeper
            else self._pool_blocker(candidate.pool, reason)
            for candidate, keeper in self._verdicts(candidates, reason)
            if keeper is not None
        }

    def _verdicts(
        self, candidates: Iterable[Candidate], reason: Reason
    ) -> Iterator[tuple[Candidate, str | None]]:
        """Yield each candidate, in order, with the budget that keeps it.

        This is None if no budget does, "" for its NodePool's budgets, and otherwise the key of a PodDisruptionBudget.
        """
        taken_by_pool: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        for candidate in candidates:
            allowance = self.nodes(candidate.pool, reason)
            if allowance is not None and taken_by_pool[candidate.pool.name] >= allowance:
                yield candidate, ""
                continue
            # A held node ends by its deadline, which overrides PodDisruptionBudgets.
            is_checked = self._inputs.snapshot.budgets and candidate.held is None
            keeper = self._refusing_budget(candidate, spent) if is_checked else ""
            if not keeper:
                taken_by_pool[candidate.pool.name] += 1
            yield candidate, keeper or None

    def _pool_blocker(self, pool: NodePool, reason: Reason) -> Blocker:
        """Return why a NodePool's budgets allow no more disruptions."""
        limits, subject = pool.disruption, f"NodePool {pool.name}"
        budget = self._strictest(pool, reason)
        message = (
            f"the disruption budgets of {subject} allow no more disruptions for now{budget and f': {budget}'}"
        )
        if limits.fault:
            message = f"{limits.fault} of {subject} is invalid: none of its nodes is disrupted until it is corrected"
        elif limits.most_an_hour is not None and self._is_too_fast(pool, limits.most_an_hour):
            message = f"{subject} has used up its maximum of disruptions in an hour ({limits.most_an_hour})"
        return Blocker(BUDGET, f"NodePool/{pool.name}", message)

    def _strictest(self, pool: NodePool, reason: Reason) -> str:
        key = pool.name, reason
        if key not in self._messages:
            inputs = self._inputs
            claims = tuple(claim for claim in inputs.ledger.claims if claim.nodepool == pool.name)
            ledger = replace(inputs.ledger, claims=claims)
            self._messages[key] = strictest(
                pool, reason.budgeted, ledger, self._leaving, inputs.snapshot, inputs.now
            )
        return self._messages[key]

    def _is_too_fast(self, pool: NodePool, hourly_limit: int) -> bool:
        if pool.name not in self._departed:
            inputs = self._inputs
            self._departed[pool.name] = len(departed(pool.name, inputs.ledger, self._leaving, inputs.now))
        return self._departed[pool.name] + self._accepted[pool.name] >= hourly_limit

    def _pod_budget_blocker(self, budget: str) -> Blocker:
        message = f"PodDisruptionBudget {budget} allows no eviction beyond those for other nodes"
        return Blocker("PodDisruptionBudget", f"PodDisruptionBudget/{budget}", message)

    def take(self, sources: Sequence[Candidate]) -> None:
        """Count the sources of an accepted move."""
        for source in sources:
            self._accepted[source.pool.name] += 1
            for pod in _evicted(source.pods):
                self._evictions.count(pod)

    def _refusing_budget(self, candidate: Candidate, spent: Counter[str]) -> str:
        """Return the PodDisruptionBudget that refuses an eviction after those for earlier nodes; empty if none does.

        So every accepted node can begin to drain at once; the budgets determine how fast its other pods follow.
        """
        guarded = _evicted(candidate.pods)
        for pod in guarded:
            if not self._evictions.permits(pod, spent):
                return self._evictions.guards(pod.shape)[0].key
        spent.update(budget for budget in map(self._evictions.budget, guarded) if budget)
        return ""

    def _count_leaving(self) -> None:
        snapshot = self._inputs.snapshot
        if not self._leaving or not snapshot.budgets:
            return
        pods = by_node(snapshot.pods)
        for node in filter(None, map(snapshot.node_of, self._leaving)):
            for pod in _evicted(moving(pods.get(node.name, ()))):
                self._evictions.count(pod)


def _evicted(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods for which an eviction will be requested when their node is disrupted.

    Pods that are already being deleted do not count again.
    """
    return [pod for pod in pods if must_go(pod.shape) and not pod.deleting]
