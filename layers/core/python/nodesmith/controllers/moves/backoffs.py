"""Back-off of moves whose replacements could not be had: a growing wait for each NodePool and reason."""

from __future__ import annotations

from nodesmith.controllers.moves.look import Look
from nodesmith.decisions.disruption.moves import Abandon
from nodesmith.model.ledger.backoffs import next_backoff
from nodesmith.model.ledger.moves import Move, MoveKind


def back_off(look: Look, step: Abandon) -> None:
    """Record that a move's replacements could not be had. Repeating the same call changes nothing."""
    known = look.ledger.move_backoffs
    for kind in _kinds(look, step.move) if step.failed else ():
        look.run.store.save_move_backoff(kind, next_backoff(known.get(kind), step.why, look.run.clock()))


def forgive(look: Look, move: Move) -> None:
    """Clear the back-off after a move got its replacements, so that the next failure counts as the first."""
    for kind in _kinds(look, move) if move.replacements else ():
        if kind in look.ledger.move_backoffs:
            look.run.store.save_move_backoff(kind, None)


def _kinds(look: Look, move: Move) -> list[MoveKind]:
    pools = {claim.nodepool for claim in look.claims(move.sources)}
    return [MoveKind(pool, move.reason.value) for pool in sorted(pools)]
