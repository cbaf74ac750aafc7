"""The next step of a move in progress, given the ledger and the cluster. Every step can be repeated.

The steps are a closed union, so that the type checker reports a step without an implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeAlias, assert_never

from nodesmith.decisions.budgets import paused, remaining
from nodesmith.decisions.scheduling.existing import is_closed, is_going, nominations
from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.evictions import must_go
from nodesmith.model.karpenter.nodeclaimobjects import DISRUPTION_REASON, shown_status
from nodesmith.model.karpenter.nodeclaims import NODE_NOT_READY, UNANSWERED, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.snapshot import Snapshot

SECOND_LOOK = timedelta(seconds=15)
"""How long a proposed move waits for its validation (Karpenter's value); a move for drift does not wait."""
PROPOSED_WITHIN = timedelta(minutes=10)
"""How long the validation may take to start: by then the cluster must have shown the taint."""
READY_WITHIN = timedelta(minutes=10)
"""How long replacements may take to become ready (Karpenter's minimum)."""
ANSWERED_WITHIN = timedelta(hours=2)
"""How long a move waits for EC2's answer about a replacement if no pod needs the room on its sources."""
RETRIED_AFTER = timedelta(minutes=1)
"""The least time between two attempts of a move to which EC2 has not answered."""
CAUGHT_UP_WITHIN = timedelta(minutes=5)
"""How much longer a move waits for a replacement whose ready Node has registered late."""
REMEMBERED = timedelta(minutes=5)
"""How long the sources of an abandoned move stay out of new moves."""
ABANDONED = "MoveAbandoned"
"""The cause of such a termination."""


@dataclass(frozen=True, slots=True)
class Taint:
    """Taint the Nodes of these claims against new pods; look again after `wait`."""

    move: Move
    claims: tuple[NodeClaim, ...]
    wait: timedelta


@dataclass(frozen=True, slots=True)
class Await:
    """Nothing to do yet. `wait` is None if an event ends the wait; `for_claims` are replacements not yet ready."""

    move: Move
    wait: timedelta | None = None
    for_claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The validation is due."""

    move: Move


@dataclass(frozen=True, slots=True)
class Conclude:
    """All replacements are ready."""

    move: Move


@dataclass(frozen=True, slots=True)
class EndSources:
    """Terminate these claims, which have the state to be written."""

    move: Move
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class Abandon:
    """Abandon the move. `failed` is True if its replacements are not available."""

    move: Move
    message: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Forget the move, so that the same nodes may be moved again at once: EC2 was away, and nothing was bought."""

    move: Move
    message: str


@dataclass(frozen=True, slots=True)
class TerminateUnused:
    """Terminate these unused replacements, which have the state to be written."""

    move: Move
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class ForgetMove:
    """Delete the move: nothing is left to be done or remembered."""

    move: Move


Step: TypeAlias = (
    Taint | Await | LookAgain | Conclude | EndSources | Abandon | Retry | TerminateUnused | ForgetMove
)


class MovingPods:
    """The pods that leave a node which is drained, without those of DaemonSets.

    `used` has the names of the nodes that they run on or are nominated for.
    """

    def __init__(self, pods: Iterable[Pod]) -> None:
        moving = [pod for pod in pods if not pod.shape.is_daemon and must_go(pod.shape)]
        self.used = frozenset(pod.node or pod.nominated_node for pod in moving) - {""}
        self._waiting: list[Pod] = []
        self._placed: dict[str, list[Pod]] = {}
        for pod in moving:
            if pod.deleting or pod.refusal:
                continue
            if pod.unschedulable:
                self._waiting.append(pod)
            else:
                self._placed.setdefault(pod.node, []).append(pod)

    def displaced(self, going: Iterable[str]) -> list[Pod]:
        """Return the pods that have no node, or one of the nodes that are `going`."""
        return [*self._waiting, *(pod for name in going for pod in self._placed.get(name, ()))]


@dataclass(frozen=True)
class StepInputs:
    """The inputs of a step: a snapshot, its pods, the ledger as read after it, and the ledger's claims by name."""

    snapshot: Snapshot
    pods: MovingPods
    ledger: Ledger
    now: datetime

    @classmethod
    def of(cls, snapshot: Snapshot, ledger: Ledger, now: datetime) -> StepInputs:
        """Return the scene for a snapshot and a ledger."""
        return cls(snapshot, MovingPods(snapshot.pods), ledger, now)

    @cached_property
    def claims(self) -> Mapping[str, NodeClaim]:
        """The claims by name."""
        return {claim.name: claim for claim in self.ledger.claims}

    @cached_property
    def displaced(self) -> Sequence[Pod]:
        """The pods that have no node, or whose node is terminating."""
        ending = {c.provider_id for c in self.ledger.claims if c.is_ending and c.provider_id}
        nodes = self.snapshot.nodes
        return self.pods.displaced(n.name for n in nodes if is_going(n) or n.provider_id in ending)

    def open(self, names: Iterable[str]) -> tuple[NodeClaim, ...]:
        """Return those of these claims whose Node does not show the disruption taint yet."""
        claims = [self.claims[name] for name in names if name in self.claims]
        return tuple(
            c for c in claims if (node := self.snapshot.node_of(c)) is not None and not is_closed(node)
        )


def next_step(move: Move, step_inputs: StepInputs) -> Step:
    """Return the next step of a move."""
    match move.stage:
        case Stage.PROPOSED:
            return _proposed(move, step_inputs)
        case Stage.REPLACING:
            return _replacing(move, step_inputs)
        case Stage.ENDING:
            ending = tuple(_ends(move, step_inputs))
            return EndSources(move, ending) if ending else ForgetMove(move)
        case Stage.ABANDONED:
            return _abandoned(move, step_inputs)
        case _:
            assert_never(move.stage)


def waits_until(move: Move) -> datetime | None:
    """Return when a move continues by itself if nothing happens; None if only an event ends its wait."""
    match move.stage:
        case Stage.PROPOSED:
            return move.proposed_at + PROPOSED_WITHIN
        case Stage.REPLACING:
            return move.stage_since + READY_WITHIN
        case Stage.ABANDONED:
            return move.stage_since + REMEMBERED
        case Stage.ENDING:
            return None
        case _:
            assert_never(move.stage)


def leftovers(step_inputs: StepInputs) -> list[NodeClaim]:
    """Return the claims whose Node is tainted, or that show DisruptionReason, although no move has them as sources."""
    sources, manifests = step_inputs.ledger.sources, step_inputs.snapshot.shown_nodeclaims()
    stranded = []
    for claim in step_inputs.ledger.claims:
        node = step_inputs.snapshot.node_of(claim)
        if node is None or is_going(node) or claim.phase is not Phase.INITIALIZED or claim.name in sources:
            continue
        if is_closed(node) or shown_status(manifests.get(claim.name, {}), DISRUPTION_REASON):
            stranded.append(claim)
    return stranded


def _proposed(move: Move, step_inputs: StepInputs) -> Step:
    obstacle = _lost_source(move, step_inputs)
    if obstacle:
        return Abandon(move, obstacle)
    if step_inputs.now - move.proposed_at >= PROPOSED_WITHIN:
        return Abandon(move, f"it was not validated within {_minutes(PROPOSED_WITHIN)}")
    pause = timedelta(0) if move.reason is Reason.DRIFTED else SECOND_LOOK
    wait = max(timedelta(0), move.stage_since + pause - step_inputs.now)
    still_open = step_inputs.open(move.sources)
    if still_open:
        return Taint(move, still_open, max(wait, timedelta(seconds=5)))
    return Await(move, wait) if wait else LookAgain(move)


def _replacing(move: Move, step_inputs: StepInputs) -> Step:
    obstacle = _lost_source(move, step_inputs)
    missing = "" if obstacle else _missing(move, step_inputs)
    if missing and all(_is_unanswered(step_inputs.claims.get(name)) for name in move.replacements):
        return Retry(move, missing)
    reason = obstacle or missing or _paused(step_inputs)
    if reason:
        return Abandon(move, reason, failed=bool(missing))
    coming = tuple(n for n in move.replacements if step_inputs.claims[n].phase is not Phase.INITIALIZED)
    if not coming:
        return Conclude(move)
    late = next(filter(None, (_late(step_inputs.claims[name], move, step_inputs) for name in coming)), "")
    if late:
        return Abandon(move, late, failed=True)
    still_open = step_inputs.open(move.sources)
    return Taint(move, still_open, SECOND_LOOK) if still_open else Await(move, for_claims=coming)


def _is_unanswered(claim: NodeClaim | None) -> bool:
    """Return whether a claim was given up because EC2 did not answer, and it is certain that it has no instance."""
    return claim is not None and claim.phase is Phase.GIVEN_UP and claim.reason in UNANSWERED


def _late(claim: NodeClaim, move: Move, step_inputs: StepInputs) -> str:
    """Return that a replacement takes too long; empty if it does not.

    One without an instance has until EC2 answers: it may have launched an instance already, so that another attempt
    could buy a second one.
    """
    if _is_unanswered(claim):
        return ""  # decided together with the others
    if claim.phase is Phase.PENDING:
        within = READY_WITHIN if step_inputs.displaced else ANSWERED_WITHIN
        is_late = step_inputs.now - move.stage_since >= within
        return f"EC2 has not answered about NodeClaim {claim.name} within {_minutes(within)}" * is_late
    since = max(move.stage_since, claim.launched_at or move.stage_since)
    is_late = step_inputs.now - since >= READY_WITHIN and not _has_come(claim, step_inputs)
    return f"NodeClaim {claim.name} was not ready within {_minutes(READY_WITHIN)}" * is_late


def _has_come(claim: NodeClaim, step_inputs: StepInputs) -> bool:
    """Return whether a replacement has a ready Node that the ledger does not know as such yet, or only since recently.

    After an outage of the ledger, the API server or S3, this is so until lifecycle has caught up.
    """
    node = step_inputs.snapshot.node_of(claim)
    if node is None or not node.is_ready:
        return False
    if claim.phase is not Phase.REGISTERED or claim.reason == NODE_NOT_READY:
        return True
    return claim.registered_at is not None and step_inputs.now - claim.registered_at < CAUGHT_UP_WITHIN


def _lost_source(move: Move, step_inputs: StepInputs) -> str:
    """Return the reason why a source is no longer available to the move; empty if all are."""
    for name in move.sources:
        claim = step_inputs.claims.get(name)
        if claim is None:
            return f"NodeClaim {name} is gone"
        if claim.is_ending:
            return f"NodeClaim {name} is already terminating: {claim.cause}"
        node = step_inputs.snapshot.node_of(claim)
        if claim.phase is not Phase.INITIALIZED or node is None:
            return f"NodeClaim {name} no longer has a Node"
        if is_going(node):
            return f"Node {node.name} is being deleted"
    return ""


def _missing(move: Move, step_inputs: StepInputs) -> str:
    """Return the reason why a replacement will not take pods; empty if all exist or are being launched.

    While EC2 has not answered about one of them, the others that it has not answered about do not count.
    """
    claims = {name: step_inputs.claims.get(name) for name in move.replacements}
    is_open = any(claim is not None and claim.phase is Phase.PENDING for claim in claims.values())
    away = step_inputs.ledger.shifted(step_inputs.now)
    for name, claim in claims.items():
        if claim is None:
            return f"replacement NodeClaim {name} is gone"
        if is_open and _is_unanswered(claim):
            continue
        if claim.zone in away:
            return f"replacement NodeClaim {name} is not available: {away[claim.zone]}"
        if claim.phase is Phase.GIVEN_UP or claim.is_ending:
            reason = ": ".join(filter(None, (claim.reason, claim.message)))
            return f"replacement NodeClaim {name} is not available: {reason}"
    return ""


def _paused(step_inputs: StepInputs) -> str:
    return str(paused(step_inputs.ledger, step_inputs.snapshot, step_inputs.now) or "")


def _ends(move: Move, step_inputs: StepInputs) -> Iterable[NodeClaim]:
    manifests = step_inputs.snapshot.shown_nodeclaims()
    for name in move.sources:
        claim = step_inputs.claims.get(name)
        if claim is not None and claim.phase is Phase.INITIALIZED:
            deadline = deadline_of(claim, manifests.get(name), step_inputs.now)
            ending = claim.terminating(move.reason.value, move.message, step_inputs.now, deadline)
            yield replace(ending, replaced_by=move.replacements)


def _abandoned(move: Move, step_inputs: StepInputs) -> Step:
    old = step_inputs.now - move.stage_since
    mine = [step_inputs.claims[name] for name in move.replacements if name in step_inputs.claims]
    replacements = [claim for claim in mine if not claim.is_ending and claim.phase is not Phase.GIVEN_UP]
    unused = empty(replacements, step_inputs)
    idle = _unneeded(unused, step_inputs, patient=old < REMEMBERED)
    ending = within_budgets(idle, step_inputs.snapshot, step_inputs.ledger, step_inputs.now)
    if ending:
        return TerminateUnused(move, tuple(ending))
    return Await(move) if unused or old < REMEMBERED else ForgetMove(move)


def _minutes(span: timedelta) -> str:
    return f"{span.total_seconds() / 60:g} minutes"


def empty(claims: Iterable[NodeClaim], step_inputs: StepInputs) -> list[NodeClaim]:
    """Return those of these claims that no pod runs on or is nominated for."""

    def name(claim: NodeClaim) -> str:
        node = step_inputs.snapshot.node_of(claim)
        return node.name if node is not None else claim.node_name

    return [claim for claim in claims if name(claim) not in step_inputs.pods.used]


def _unneeded(claims: Iterable[NodeClaim], step_inputs: StepInputs, *, patient: bool) -> list[NodeClaim]:
    """Return those of these claims that no pod without a node and no booked room needs, marked as terminating.

    If `patient` is True, none is returned while any pod waits for a node.
    """
    if step_inputs.displaced and patient:
        return []
    nominated = nominations(step_inputs.ledger.claims, step_inputs.now)
    awaited = {nominated[pod.key] for pod in step_inputs.displaced if pod.key in nominated}
    awaited |= step_inputs.ledger.booked(step_inputs.now)
    message = "the move that it was bought for was abandoned"
    idle = [claim for claim in claims if claim.name not in awaited]
    return [claim.terminating(ABANDONED, message, step_inputs.now) for claim in idle]


def within_budgets(
    claims: Iterable[NodeClaim], snapshot: Snapshot, ledger: Ledger, now: datetime
) -> list[NodeClaim]:
    """Return those of these claims that may end now.

    These are all claims that are not ready, and as many of the ready ones as budgets allow.
    """
    pools = parsed_nodepools(snapshot.nodepools)
    permitted: list[NodeClaim] = []
    for claim in claims:
        node, pool = snapshot.node_of(claim), pools.get(claim.nodepool)
        serves = claim.initialized_at is not None and node is not None and node.is_ready
        if serves and pool is not None:
            reason = Reason.EMPTY.budgeted
            if remaining(pool, reason, ledger, permitted, snapshot, now, budgets_only=True) == 0:
                continue
        permitted.append(claim)
    return permitted
