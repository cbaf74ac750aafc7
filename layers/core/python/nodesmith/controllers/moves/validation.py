"""Validation of proposed moves. All moves that are due are validated together, since simulating a whole fleet is slow.

For a valid move, replacements are bought, or its sources may end at once. Each move is committed on its own. A move
that fails, or that another run has changed, is validated again in the next run.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from nodesmith.controllers.launching.launch import TypeTable, buy, committable
from nodesmith.controllers.moves.look import Look
from nodesmith.controllers.moves.metrics import note_decision, note_failed_validation
from nodesmith.controllers.moves.tainting import abandon
from nodesmith.decisions.disruption import notifications
from nodesmith.decisions.disruption.moves.stages import next_step
from nodesmith.decisions.disruption.moves.steps import LookAgain
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.record import record
from nodesmith.decisions.disruption.search.search import look_again
from nodesmith.decisions.provisioning import Inputs
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.functions.hints import Concern
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.moves import Move, Stage

MOST_AT_ONCE = 40
"""The most moves in one validation: more would exceed a run's time."""


def look_again_at_all(look: Look) -> None:
    """Validate the moves that are due, and carry out the result."""
    scene = look.scene()
    due = [move for move in look.ledger.moves if isinstance(next_step(move, scene), LookAgain)]
    moves = due[:MOST_AT_ONCE]
    if not moves:
        return
    inputs = look.inputs("".join(move.id for move in moves))
    with look.run.metrics.timed("scheduler_scheduling_duration_seconds", controller="disruption"):
        found = look_again(moves, inputs)
    if len(found) < len(due):
        look.run.wake_me(timedelta(seconds=1))
    carried = _Carrying(look, inputs, [found[move.id] for move in moves if move.id in found], moves)
    for move in moves:
        if move.id in found and not carried.on(move, found[move.id]):
            break
    look.reload()


class _Carrying:
    """One decision about several moves, and how much of it has been committed so far."""

    def __init__(self, look: Look, inputs: Inputs, found: list[Proposal | str], moves: list[Move]) -> None:
        self._look, self._inputs, self._bought = look, inputs, 0
        proposals = [each for each in found if isinstance(each, Proposal)]
        self._written = record(inputs, proposals, look.digest, again=[move.id for move in moves])
        if any(each.replacements for each in proposals):
            look.write_down(inputs.decision, self._written)
        self._types = TypeTable(look.snapshot, inputs.catalog, inputs.settings, inputs.ledger)

    def on(self, move: Move, found: Proposal | str) -> bool:
        """Carry out the result for one move; return whether others may follow: not if another run has bought nodes."""
        look = self._look
        try:
            if isinstance(found, str):
                abandon(look, move, found)
                note_failed_validation(look, move, ())
            elif len(committable(found.replacements)) < len(found.replacements):
                abandon(look, move, f"{len(found.replacements)} nodes are more than one commit takes")
            else:
                self._stands(move, found)
        except Conflict:
            look.done["Conflict"] += 1
            look.run.wake_me(timedelta(seconds=5))
            return isinstance(found, str) or not found.replacements
        except (Transient, Rejected) as error:
            look.failures.add(error, f"move {move.id}")
        return True

    def _stands(self, move: Move, found: Proposal) -> None:
        why = found.why or move.why
        told = {"saving_hourly_usd": found.saving_hourly_usd, "harm": found.harm, "why": why}
        names = tuple(node.claim.name for node in found.replacements)
        stage = Stage.REPLACING if names else Stage.ENDING
        next_ = move.at(stage, self._inputs.now, sources=found.sources, replacements=names, **told)
        if names:
            self._buy(next_, found)
        else:
            self._look.run.store.save_move(next_)
        note_decision(self._look, next_)
        note_failed_validation(self._look, move, next_.sources)
        sources, pools = self._look.claims(next_.sources), parsed_nodepools(self._look.snapshot.nodepools)
        approved = notifications.of_approval(next_, sources, pools)
        self._look.run.publish_new([*approved, *notifications.of_launches(next_)])

    def _buy(self, move: Move, found: Proposal) -> None:
        """Buy the replacements. Each commit increments the ledger's version."""
        look, inputs, run = self._look, self._inputs, self._look.run
        ledger = replace(inputs.ledger, version=inputs.ledger.version + self._bought)
        try:
            settled = buy(run, found.replacements, ledger, self._types, inputs.decision, move)
        except Conflict:
            if not self._bought:
                look.supersede(inputs.decision, self._written)
            raise
        self._bought += 1
        look.keep_snapshot(inputs.decision)
        look.done["NodeClaimsLaunched"] += len(settled.launched)
        look.done["NodeClaimsGivenUp"] += len(settled.given_up)
        run.wake(Concern.LIFECYCLE, "claims changed")
        if settled.deferred:
            run.wake(Concern.PROVISIONING, "launches are to be repeated", 5)
