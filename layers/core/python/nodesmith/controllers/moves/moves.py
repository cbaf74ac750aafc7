"""Carrying out moves, one step at a time: each stage is written to the ledger before the cluster or EC2 is changed.

A crash after any call leaves a move in the stage that was written. The next run repeats that step or goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import assert_never

from nodesmith.controllers.moves.backoffs import back_off, forgive
from nodesmith.controllers.moves.look import Look
from nodesmith.controllers.moves.metrics import note_abandoned
from nodesmith.controllers.moves.tainting import abandon, close
from nodesmith.controllers.moves.validation import look_again_at_all
from nodesmith.decisions.disruption import moves, notifications
from nodesmith.decisions.disruption.moves import Step, next_step
from nodesmith.decisions.disruption.search.search import may_end
from nodesmith.effects import begin_end
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.commands import End
from nodesmith.model.functions.hints import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.moves import Move, Stage

MOST_STEPS = 6
"""The most steps of one move in one run: more than there are stages."""
LONGEST = timedelta(seconds=40)
"""After this long, a run leaves the other moves to the next one: it must not last longer than a minute."""


def carry_on(look: Look) -> None:
    """Take every move as far as possible now."""
    began = look.run.clock()
    look_again_at_all(look)
    for id_ in [move.id for move in look.ledger.moves]:
        if look.run.clock() - began > LONGEST:
            look.run.wake_me(timedelta(seconds=1))
            break
        for _ in range(MOST_STEPS):
            move = next((each for each in look.ledger.moves if each.id == id_), None)
            if move is None or not _goes_on(look, move):
                break


def _goes_on(look: Look, move: Move) -> bool:
    """Take a move one step further; return whether another step may follow at once."""
    try:
        moved = _take(look, next_step(move, look.scene()))
        if moved:
            look.reload()
        return moved
    except Conflict:
        look.done["Conflict"] += 1  # another run has advanced the move, or another function one of its claims
        look.reload()
        look.run.wake_me(timedelta(seconds=5))
    except (Transient, Rejected) as error:
        look.failures.add(error, f"move {move.id}")
    return False


def _take(look: Look, step: Step) -> bool:
    run = look.run
    match step:
        case moves.Taint():
            close(look, step.claims, step.move.reason)
            run.wake_me(step.wait)
            return False
        case moves.Await():
            if step.wait is not None:
                run.wake_me(step.wait)
            run.publish_new(notifications.of_waiting(step.move, step.for_claims))
            return False
        case moves.LookAgain():
            look.run.wake_me(timedelta(seconds=1))  # it has become due since the joint validation of this run
            return False
        case moves.Conclude():
            return _conclude(look, step.move)
        case moves.EndSources():
            return _end(look, step)
        case moves.Abandon():
            back_off(look, step)
            abandon(look, step.move, step.why)
            note_abandoned(look, step.move)
            return True
        case moves.TidyUp():
            _end_all(look, step.claims)
            return True
        case moves.ForgetMove():
            run.store.forget_move(step.move)
            return True
        case _:
            assert_never(step)


def _conclude(look: Look, move: Move) -> bool:
    """Let the sources end now that their replacements are ready, or abandon the move if something new prevents it."""
    inputs = look.inputs(move.id)
    why = may_end(move, inputs)
    if why:
        abandon(look, move, why)
        return True
    look.run.store.save_move(move.at(Stage.ENDING, inputs.now))
    return True


def _end(look: Look, step: moves.EndSources) -> bool:
    """Begin to end the sources of a move. Termination drains them; provisioning buys for pods whose room was taken."""
    run = look.run
    _end_all(look, step.claims)
    look.done["NodesDisrupted"] += len(step.claims)
    look.done[f"NodesDisrupted{step.move.reason}"] += len(step.claims)
    run.wake(Concern.PROVISIONING, "nodes are disrupted")
    forgive(look, step.move)
    run.store.forget_move(step.move)
    run.publish_new(notifications.of_ends(step.move, step.claims))
    return True


def _end_all(look: Look, claims: Iterable[NodeClaim]) -> None:
    for claim in claims:
        begin_end(End(claim), look.run.store, look.run.cluster)
    look.run.wake(Concern.TERMINATION, "nodes end")
