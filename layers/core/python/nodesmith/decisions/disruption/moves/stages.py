"""The next step of a move in progress, given the ledger and the cluster. Every step can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.disruption.moves.leftovers import empty, unneeded, within_budgets
from nodesmith.decisions.disruption.moves.steps import (
    Abandon,
    Await,
    Conclude,
    EndSources,
    ForgetMove,
    LookAgain,
    Step,
    Taint,
    TidyUp,
)
from nodesmith.decisions.scheduling.nodes.existing import is_closed, is_going
from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.model.karpenter.nodeclaimobjects import DISRUPTION_REASON, shown_status
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.snapshot import Snapshot

SECOND_LOOK = timedelta(seconds=15)
"""How long a proposed move waits for its validation (Karpenter's value); a move for drift does not wait."""
PROPOSED_WITHIN = timedelta(minutes=10)
"""How long the validation may take to start: by then the cluster must have shown the taint."""
READY_WITHIN = timedelta(minutes=10)
"""How long replacements may take to become ready (Karpenter's minimum)."""
REMEMBERED = timedelta(minutes=5)
"""How long the sources of an abandoned move stay out of new moves."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The inputs of a step: a snapshot, the ledger as read after it, and the ledger's claims by name."""

    snapshot: Snapshot
    ledger: Ledger
    now: datetime
    claims: Mapping[str, NodeClaim]

    @classmethod
    def of(cls, snapshot: Snapshot, ledger: Ledger, now: datetime) -> Scene:
        """Return the scene for a snapshot and a ledger."""
        return cls(snapshot, ledger, now, {claim.name: claim for claim in ledger.claims})

    def open(self, names: Iterable[str]) -> tuple[NodeClaim, ...]:
        """Return those of these claims whose Node does not show the disruption taint yet."""
        there = [self.claims[name] for name in names if name in self.claims]
        return tuple(
            c for c in there if (node := self.snapshot.node_of(c)) is not None and not is_closed(node)
        )


def next_step(move: Move, scene: Scene) -> Step:
    """Return the next step of a move."""
    match move.stage:
        case Stage.PROPOSED:
            return _proposed(move, scene)
        case Stage.REPLACING:
            return _replacing(move, scene)
        case Stage.ENDING:
            ending = tuple(_ends(move, scene))
            return EndSources(move, ending) if ending else ForgetMove(move)
        case Stage.ABANDONED:
            return _abandoned(move, scene)
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


def strays(scene: Scene) -> list[NodeClaim]:
    """Return the claims whose Node is tainted, or that show DisruptionReason, although no move has them as sources."""
    sources, shown = scene.ledger.sources, scene.snapshot.shown_nodeclaims()
    found = []
    for claim in scene.ledger.claims:
        node = scene.snapshot.node_of(claim)
        if node is None or is_going(node) or claim.phase is not Phase.INITIALIZED or claim.name in sources:
            continue
        if is_closed(node) or shown_status(shown.get(claim.name, {}), DISRUPTION_REASON):
            found.append(claim)
    return found


def _proposed(move: Move, scene: Scene) -> Step:
    lost = _lost(move, scene)
    if lost:
        return Abandon(move, lost)
    if scene.now - move.proposed_at >= PROPOSED_WITHIN:
        return Abandon(move, f"it was not validated within {_minutes(PROPOSED_WITHIN)}")
    pause = timedelta(0) if move.reason is Reason.DRIFTED else SECOND_LOOK
    left = max(timedelta(0), move.stage_since + pause - scene.now)
    still_open = scene.open(move.sources)
    if still_open:
        return Taint(move, still_open, max(left, timedelta(seconds=5)))
    return Await(move, left) if left else LookAgain(move)


def _replacing(move: Move, scene: Scene) -> Step:
    lost = _lost(move, scene)
    missing = "" if lost else _missing(move, scene)
    why = lost or missing or _paused(scene)
    if why:
        return Abandon(move, why, failed=bool(missing))
    coming = tuple(n for n in move.replacements if scene.claims[n].phase is not Phase.INITIALIZED)
    if not coming:
        return Conclude(move)
    if scene.now - move.stage_since >= READY_WITHIN:
        why = f"NodeClaim {coming[0]} was not ready within {_minutes(READY_WITHIN)}"
        return Abandon(move, why, failed=True)
    still_open = scene.open(move.sources)
    return Taint(move, still_open, SECOND_LOOK) if still_open else Await(move, for_claims=coming)


def _lost(move: Move, scene: Scene) -> str:
    """Return the reason why a source is no longer available to the move; empty if all are."""
    for name in move.sources:
        claim = scene.claims.get(name)
        if claim is None:
            return f"NodeClaim {name} is gone"
        if claim.is_ending:
            return f"NodeClaim {name} is already terminating: {claim.cause}"
        node = scene.snapshot.node_of(claim)
        if claim.phase is not Phase.INITIALIZED or node is None:
            return f"NodeClaim {name} no longer has a Node"
        if is_going(node):
            return f"Node {node.name} is being deleted"
    return ""


def _missing(move: Move, scene: Scene) -> str:
    """Return the reason why a replacement will not become ready; empty if all exist or are being launched."""
    for name in move.replacements:
        claim = scene.claims.get(name)
        if claim is None:
            return f"replacement NodeClaim {name} is gone"
        if claim.phase is Phase.GIVEN_UP or claim.is_ending:
            why = ": ".join(filter(None, (claim.reason, claim.message)))
            return f"replacement NodeClaim {name} is not available: {why}"
    return ""


def _paused(scene: Scene) -> str:
    return str(scene.ledger.paused or "")


def _ends(move: Move, scene: Scene) -> Iterable[NodeClaim]:
    shown = scene.snapshot.shown_nodeclaims()
    for name in move.sources:
        claim = scene.claims.get(name)
        if claim is not None and claim.phase is Phase.INITIALIZED:
            deadline = deadline_of(claim, shown.get(name), scene.now)
            ending = claim.terminating(move.reason.value, move.why, scene.now, deadline)
            yield replace(ending, replaced_by=move.replacements)


def _abandoned(move: Move, scene: Scene) -> Step:
    old = scene.now - move.stage_since
    mine = [scene.claims[name] for name in move.replacements if name in scene.claims]
    left = [claim for claim in mine if not claim.is_ending and claim.phase is not Phase.GIVEN_UP]
    unused = empty(left, scene.snapshot)
    idle = unneeded(unused, scene.snapshot, scene.ledger, scene.now, patient=old < REMEMBERED)
    ending = within_budgets(idle, scene.snapshot, scene.ledger, scene.now)
    if ending:
        return TidyUp(move, tuple(ending))
    return Await(move) if unused or old < REMEMBERED else ForgetMove(move)


def _minutes(span: timedelta) -> str:
    return f"{span.total_seconds() / 60:g} minutes"
