"""One look of disruption at a cluster: what it reads and writes, its metrics, and taints on the sources of moves."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from nodesmith.controllers.launching.launch import write_down
from nodesmith.controllers.region.commitments import known_commitments
from nodesmith.controllers.runs import ClusterPorts, EventDeduplication, SelfHints, publish_new
from nodesmith.decisions.disruption.moves import MovingPods, StepInputs
from nodesmith.decisions.disruption.proposals import Proposals
from nodesmith.decisions.provisioning import Inputs, decision_id
from nodesmith.decisions.reporting import events
from nodesmith.errors import Failures
from nodesmith.keys import decision_snapshot_key
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.nodeclaimobjects import DISRUPTION_REASON, ObjectCondition, condition_item
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.ledger.commitments import Commitments
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.metrics.metrics import Metrics, labelled
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Catalogs, CommitmentStore

AGAIN_AFTER = timedelta(minutes=15)
"""How long the same Event on the same object is not repeated, as in Karpenter."""


@dataclass(slots=True)
class Memory:
    """What a warm process keeps from run to run. Losing it does no harm."""

    published: EventDeduplication = field(default_factory=dict)
    looked_at: Mapping[str, datetime] = field(default_factory=dict)
    self_hints: SelfHints = field(default_factory=SelfHints)
    rests_until: datetime | None = None
    """until when no search begins, however much has changed"""
    seen: tuple[Snapshot, Ledger] | None = None
    """what the last search that found nothing to do looked at"""
    until: datetime | None = None
    """when the next search is made even though nothing has changed"""
    due: datetime | None = None
    """the next foreseeable moment at which time alone may change the result of a search"""
    next_search: datetime | None = None
    """the earliest moment at which time alone can change the result of the last search; None for never"""


@dataclass(frozen=True, slots=True)
class Disruption(ClusterPorts):
    """What a run needs."""

    settings: NodeSettings
    catalogs: Catalogs
    memory: Memory = field(default_factory=Memory)
    commitments: CommitmentStore | None = None

    def publish_new(self, events: Iterable[ObjectEvent], most: int | None = None) -> None:
        """Publish the Events that were not published lately, at most `most` of them."""
        publish_new(self.cluster, events, self.memory.published, self.clock(), AGAIN_AFTER, most)

    def wake(self, concern: Concern, reason: str, seconds: int = 0) -> None:
        """Wake a concern, after `seconds`."""
        self.hints.send(concern, Hint(self.cluster_name, reason), seconds)

    def wake_me(self, wait: timedelta) -> None:
        """Have disruption look again after `wait`."""
        hint = Hint(self.cluster_name, "moves are under way")
        self.memory.self_hints.send(self.hints, Concern.DISRUPTION, hint, wait, self.clock())


@dataclass
class RunState:
    """A snapshot, also as its raw `data`, and the ledger: read after the snapshot, and again whenever it has changed.

    `done` counts what was done. An error in one move is kept in `failures` until all others have been processed.
    """

    run: Disruption
    snapshot: Snapshot
    data: bytes
    ledger: Ledger
    done: Counter[str] = field(default_factory=Counter)
    failures: Failures = field(default_factory=Failures)
    decisions: list[str] = field(default_factory=list)
    due: datetime | None = None
    """when to look again although nothing changes; None for never"""

    def step_inputs(self) -> StepInputs:
        """Return the input for deciding the steps of moves."""
        return StepInputs(self.snapshot, self._pods, self.ledger, self.run.clock())

    def inputs(self, about: str = "") -> Inputs:
        """Return the input for deciding moves. Decisions with a different `about` have different ids."""
        now = self.run.clock()
        ledger = replace(self.ledger, learned=self._learned, commitments=self._commitments)
        decision = decision_id(self.digest + about, ledger.version, now)
        settings = self.run.settings.in_cluster(ledger.cluster)
        return Inputs(self.snapshot, ledger, self._catalog, settings, now, decision)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the snapshot's data."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def _pods(self) -> MovingPods:
        return MovingPods(self.snapshot.pods)

    @cached_property
    def _learned(self) -> Mapping[Boot, Offered]:
        return self.run.store.learned()

    @cached_property
    def _commitments(self) -> Commitments:
        return known_commitments(self.run.commitments)

    @cached_property
    def _catalog(self) -> Catalog:
        return self.run.catalogs.latest()

    def reload(self) -> None:
        """Read the ledger again."""
        self.ledger = self.run.store.load()

    def claims(self, names: Iterable[str]) -> list[NodeClaim]:
        """Return the claims with these names that exist in the ledger."""
        wanted_names = frozenset(names)
        return [claim for claim in self.ledger.claims if claim.name in wanted_names]

    def write_down(self, decision: str, written: Mapping[str, Any]) -> None:
        """Store a decision's record, before the decision is carried out."""
        write_down(self.run.blobs, self.run.cluster_name, decision, written)
        self.decisions.append(decision)

    def keep_snapshot(self, decision: str) -> None:
        """Store a decision's snapshot for replays. If the decision buys nodes, call this only after EC2 was asked."""
        self.run.blobs.put(decision_snapshot_key(self.run.cluster_name, decision), self.data)

    def supersede(self, decision: str, written: Mapping[str, Any]) -> None:
        """Record that a decision was not carried out, because another run was first."""
        write_down(self.run.blobs, self.run.cluster_name, decision, {**written, "superseded": True})
        self.decisions.remove(decision)


_SINGLE, _MULTI = "single", "multi"


def timed(metrics: Metrics) -> Callable[[Reason], AbstractContextManager[None]]:
    """Return a function that measures how long the search for moves of a reason takes."""

    def measure(reason: Reason) -> AbstractContextManager[None]:
        about = {"reason": reason.lower(), "consolidation_type": _type(reason, _MULTI)}
        return metrics.timed("voluntary_disruption_decision_evaluation_duration_seconds", **about)

    return measure


def note_search(state: RunState, proposals: Proposals) -> None:
    """Record what a search pass has found."""
    metrics = state.run.metrics
    eligible = {labelled(reason=reason.lower()): float(count) for reason, count in proposals.eligible.items()}
    metrics.show("voluntary_disruption_eligible_nodes", eligible, state.run.clock())
    if not proposals.is_finished:
        metrics.count("voluntary_disruption_consolidation_timeouts_total", consolidation_type=_MULTI)


def note_decision(state: RunState, move: Move) -> None:
    """Count a move that has passed validation."""
    about = _about(move)
    state.run.metrics.count("voluntary_disruption_decisions_total", **about)
    for nodepool in sorted({claim.nodepool for claim in state.claims(move.sources)}):
        name = "voluntary_disruption_decisions_by_nodepool_total"
        state.run.metrics.count(name, nodepool=nodepool, **about)


def note_failed_validation(state: RunState, move: Move, valid: Collection[str]) -> None:
    """Count the source nodes of a move that are not `valid` any more."""
    failed = len(set(move.sources) - set(valid))
    if failed:
        kind = _type(move.reason, _SINGLE if len(move.sources) == 1 else _MULTI)
        name = "voluntary_disruption_failed_validations_total"
        state.run.metrics.count(name, failed, consolidation_type=kind)


def note_abandoned(state: RunState, move: Move) -> None:
    """Count what failed in an abandoned move: its sources if it was only proposed, otherwise its replacements."""
    if move.stage is Stage.PROPOSED:
        note_failed_validation(state, move, ())
        return
    phases = {claim.name: claim.phase for claim in state.claims(move.replacements)}
    failed = sum(phases.get(name) is not Phase.INITIALIZED for name in move.replacements)
    if failed:
        state.run.metrics.count("voluntary_disruption_queue_failures_total", failed, **_about(move))


def _about(move: Move) -> dict[str, str]:
    return {
        "decision": "replace" if move.replacements else "delete",
        "reason": move.reason.lower(),
        "consolidation_type": _type(move.reason, _SINGLE if len(move.sources) == 1 else _MULTI),
    }


def _type(reason: Reason, of_pods: str) -> str:
    """Return Karpenter's consolidation type: `of_pods` for underutilized nodes, "empty" for empty ones, else ""."""
    return {Reason.EMPTY: "empty", Reason.UNDERUTILIZED: of_pods}.get(reason, "")


# While a source has this taint, its NodeClaim shows the condition `DisruptionReason`.
_CLOSED, _OPENED = NodePatch({}, add_taints=(DISRUPTED,)), NodePatch({}, remove_taints=(DISRUPTED,))


def close(state: RunState, claims: Sequence[NodeClaim], reason: Reason) -> None:
    """Taint the claims' Nodes so that no more pods are scheduled there, and show the reason on the NodeClaims."""
    _patch(state, claims, _CLOSED)
    _show(state, claims, "True", reason.value)


def open_again(state: RunState, claims: Sequence[NodeClaim]) -> None:
    """Remove the taint from the claims' Nodes, and the reason from the NodeClaims."""
    _patch(state, claims, _OPENED)
    _show(state, claims, "False")


def abandon(state: RunState, move: Move, reason: str) -> None:
    """Abandon a move. Nodes that were bought for it are removed later."""
    abandoned = state.run.store.save_move(move.at(Stage.ABANDONED, state.run.clock(), message=reason))
    state.done["MovesAbandoned"] += 1
    open_sources(state, abandoned)


def open_sources(state: RunState, move: Move) -> None:
    """Open the sources of a move that is over, and publish why it is."""
    sources = [claim for claim in state.claims(move.sources) if not claim.is_ending]
    open_again(state, sources)
    state.run.publish_new(events.of_abandoning(move, sources))


def _patch(state: RunState, claims: Iterable[NodeClaim], patch: NodePatch) -> None:
    for claim in claims:
        if claim.node_name:
            state.run.cluster.register_node(claim.node_name, replace(patch, provider_id=claim.provider_id))


def _show(state: RunState, claims: Iterable[NodeClaim], status: str, reason: str = "") -> None:
    condition = condition_item(ObjectCondition(DISRUPTION_REASON, status, state.run.clock(), reason, ""))
    for claim in claims:
        state.run.cluster.merge_status("NodeClaim", claim.name, {"conditions": [condition]})
