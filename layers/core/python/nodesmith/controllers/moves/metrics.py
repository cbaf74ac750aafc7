"""Metrics on disruption, under Karpenter's names."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from nodesmith.controllers.moves.look import Look
from nodesmith.decisions.disruption.proposals import Proposals
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.metrics import Metrics, labelled

_SINGLE, _MULTI = "single", "multi"


def timed(metrics: Metrics) -> Callable[[Reason], AbstractContextManager[None]]:
    """Return a function that measures how long the search for moves of a reason takes."""

    def measure(reason: Reason) -> AbstractContextManager[None]:
        about = {"reason": reason.lower(), "consolidation_type": _type(reason, _MULTI)}
        return metrics.timed("voluntary_disruption_decision_evaluation_duration_seconds", **about)

    return measure


def note_search(look: Look, found: Proposals) -> None:
    """Record what a search pass has found."""
    metrics = look.run.metrics
    eligible = {labelled(reason=reason.lower()): float(count) for reason, count in found.eligible.items()}
    metrics.show("voluntary_disruption_eligible_nodes", eligible, look.run.clock())
    if not found.is_finished:
        metrics.count("voluntary_disruption_consolidation_timeouts_total", consolidation_type=_MULTI)


def note_decision(look: Look, move: Move) -> None:
    """Count a move that has passed validation."""
    about = _about(move)
    look.run.metrics.count("voluntary_disruption_decisions_total", **about)
    for nodepool in sorted({claim.nodepool for claim in look.claims(move.sources)}):
        name = "voluntary_disruption_decisions_by_nodepool_total"
        look.run.metrics.count(name, nodepool=nodepool, **about)


def note_failed_validation(look: Look, move: Move, kept: Collection[str]) -> None:
    """Count the source nodes of a move that validation has not `kept`."""
    failed = len(set(move.sources) - set(kept))
    if failed:
        kind = _type(move.reason, _SINGLE if len(move.sources) == 1 else _MULTI)
        name = "voluntary_disruption_failed_validations_total"
        look.run.metrics.count(name, failed, consolidation_type=kind)


def note_abandoned(look: Look, move: Move) -> None:
    """Count what failed in an abandoned move: its sources if it was only proposed, otherwise its replacements."""
    if move.stage is Stage.PROPOSED:
        note_failed_validation(look, move, ())
        return
    there = {claim.name: claim.phase for claim in look.claims(move.replacements)}
    failed = sum(there.get(name) is not Phase.INITIALIZED for name in move.replacements)
    if failed:
        look.run.metrics.count("voluntary_disruption_queue_failures_total", failed, **_about(move))


def _about(move: Move) -> dict[str, str]:
    return {
        "decision": "replace" if move.replacements else "delete",
        "reason": move.reason.lower(),
        "consolidation_type": _type(move.reason, _SINGLE if len(move.sources) == 1 else _MULTI),
    }


def _type(reason: Reason, of_pods: str) -> str:
    """Return Karpenter's consolidation type: `of_pods` for underutilized nodes, "empty" for empty ones, else ""."""
    return {Reason.EMPTY: "empty", Reason.UNDERUTILIZED: of_pods}.get(reason, "")
