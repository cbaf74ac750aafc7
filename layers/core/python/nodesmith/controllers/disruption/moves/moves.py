"""Carrying out moves, one step at a time: each stage is written to the ledger before the cluster or EC2 is changed.

A crash after any call leaves a move in the stage that was written. The next run repeats that step or goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import assert_never

from nodesmith.controllers.disruption.moves.runstate import (
    RunState,
    abandon,
    close,
    note_abandoned,
    note_decision,
    note_failed_validation,
    open_sources,
)
from nodesmith.controllers.launching.launch import TypeTable, buy, committable
from nodesmith.controllers.region.commitments import claim_commitments
from nodesmith.decisions.disruption import moves
from nodesmith.decisions.disruption.moves import RETRIED_AFTER, Abandon, LookAgain, Step, next_step
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.search import look_again, may_end, record
from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.reporting import events
from nodesmith.decisions.scheduling.offerings.quotas import exceeded
from nodesmith.effects import begin_end
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.launcheffects import intents
from nodesmith.model.commands import End
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.learned import Backoff, next_backoff
from nodesmith.model.ledger.moves import Move, MoveKind, Stage

MOST_STEPS = 6
"""The most steps of one move in one run: more than there are stages."""
LONGEST = timedelta(seconds=40)
"""After this long, a run leaves the other moves to the next one: it must not last longer than a minute."""
SOON = timedelta(seconds=5)
"""When to look again at the sources of a move that is to be retried: the snapshot then shows them open."""


def carry_on(state: RunState) -> None:
    """Take every move as far as possible now."""
    began = state.run.clock()
    look_again_at_all(state)
    for id_ in [move.id for move in state.ledger.moves]:
        if state.run.clock() - began > LONGEST:
            state.run.wake_me(timedelta(seconds=1))
            break
        for _ in range(MOST_STEPS):
            move = next((candidate for candidate in state.ledger.moves if candidate.id == id_), None)
            if move is None or not _goes_on(state, move):
                break


def _goes_on(state: RunState, move: Move) -> bool:
    """Take a move one step further; return whether another step may follow at once."""
    try:
        moved = _take(state, next_step(move, state.step_inputs()))
        if moved:
            state.reload()
        return moved
    except Conflict:
        state.done["Conflict"] += (
            1  # another run has advanced the move, or another function one of its claims
        )
        state.reload()
        state.run.wake_me(timedelta(seconds=5))
    except (Transient, Rejected) as error:
        state.failures.add(error, f"move {move.id}")
    return False


def _take(state: RunState, step: Step) -> bool:
    run = state.run
    match step:
        case moves.Taint() | moves.Await() | moves.LookAgain():
            _wait(state, step)
            return False
        case moves.Conclude():
            return _conclude(state, step.move)
        case moves.EndSources():
            return _end(state, step)
        case moves.Abandon():
            back_off(state, step)
            abandon(state, step.move, step.message)
            note_abandoned(state, step.move)
            return True
        case moves.Retry():
            _retry(state, step)
            return True
        case moves.TerminateUnused():
            _end_all(state, step.claims)
            return True
        case moves.ForgetMove():
            run.store.forget_move(step.move)
            return True
        case _:
            assert_never(step)


def _wait(state: RunState, step: moves.Taint | moves.Await | moves.LookAgain) -> None:
    """Let the move stay in its stage, and look again after a while unless an event ends the wait."""
    run = state.run
    match step:
        case moves.Taint():
            close(state, step.claims, step.move.reason)
            run.wake_me(step.wait)
        case moves.Await():
            if step.wait is not None:
                run.wake_me(step.wait)
            run.publish_new(events.of_replacements(step.move, step.for_claims))
        case moves.LookAgain():
            # The joint validation of this run has left it out, or another run was first.
            run.wake_me(timedelta(seconds=1))
        case _:
            assert_never(step)


def _retry(state: RunState, step: moves.Retry) -> None:
    """Open the sources and forget the move. Soon afterwards the cluster shows them open, and the next search begins."""
    hold_off(state, step)
    note_abandoned(state, step.move)
    open_sources(state, replace(step.move, message=step.message))
    state.run.store.forget_move(step.move)
    state.done["MovesRetried"] += 1
    state.run.wake_me(SOON)


def _conclude(state: RunState, move: Move) -> bool:
    """Let the sources end now that their replacements are ready, or abandon the move if something new prevents it."""
    inputs = state.inputs(move.id)
    obstacle = may_end(move, inputs)
    if obstacle:
        abandon(state, move, obstacle)
        return True
    state.run.store.save_move(move.at(Stage.ENDING, inputs.now))
    return True


def _end(state: RunState, step: moves.EndSources) -> bool:
    """Begin to end the sources of a move. Termination drains them; provisioning buys for pods whose room was taken."""
    run = state.run
    _end_all(state, step.claims)
    state.done["NodesDisrupted"] += len(step.claims)
    state.done[f"NodesDisrupted{step.move.reason}"] += len(step.claims)
    run.wake(Concern.PROVISIONING, "nodes are disrupted")
    clear_backoff(state, step.move)
    run.store.forget_move(step.move)
    run.publish_new(events.of_ends(step.move, step.claims))
    return True


def _end_all(state: RunState, claims: Iterable[NodeClaim]) -> None:
    for claim in claims:
        begin_end(End(claim), state.run.store, state.run.cluster)
    state.run.wake(Concern.TERMINATION, "nodes end")


# All moves that are due are validated together, since simulating a whole fleet is slow. For a valid move,
# replacements are bought, or its sources may end at once. Each move is committed on its own. A move that fails, or
# that another run has changed, is validated again in the next run.
MOST_AT_ONCE = 40
"""The most moves in one validation: more would exceed a run's time."""


def look_again_at_all(state: RunState) -> None:
    """Validate the moves that are due, and carry out the result."""
    step_inputs = state.step_inputs()
    due = (move for move in state.ledger.moves if isinstance(next_step(move, step_inputs), LookAgain))
    moves = [*islice(due, MOST_AT_ONCE)]
    if not moves:
        return
    inputs = state.inputs("".join(move.id for move in moves))
    with state.run.metrics.timed("scheduler_scheduling_duration_seconds", controller="disruption"):
        verdicts = look_again(moves, inputs)
    carried = _Carrying(state, inputs, [verdicts[move.id] for move in moves if move.id in verdicts], moves)
    for move in moves:
        if move.id in verdicts and not carried.on(move, verdicts[move.id]):
            break
    state.reload()


class _Carrying:
    """One decision about several moves, and how much of it has been committed so far."""

    def __init__(
        self, state: RunState, inputs: Inputs, verdicts: list[Proposal | str], moves: list[Move]
    ) -> None:
        self._state, self._inputs, self._bought = state, inputs, 0
        self._claims: list[NodeClaim] = []
        proposals = [verdict for verdict in verdicts if isinstance(verdict, Proposal)]
        self._written = record(inputs, proposals, state.digest, again=[move.id for move in moves])
        if any(proposal.replacements for proposal in proposals):
            state.write_down(inputs.decision, self._written)
        self._types = TypeTable(state.snapshot, inputs.catalog, inputs.settings, inputs.ledger)

    def on(self, move: Move, verdict: Proposal | str) -> bool:
        """Carry out the result for one move; return whether others may follow: not if another run has bought nodes."""
        state = self._state
        try:
            if isinstance(verdict, str):
                abandon(state, move, verdict)
                note_failed_validation(state, move, ())
            elif obstacle := self._exceeds(verdict):
                abandon(state, move, obstacle)
            elif len(committable(verdict.replacements)) < len(verdict.replacements):
                abandon(state, move, f"{len(verdict.replacements)} nodes are more than one commit takes")
            else:
                self._go_on(move, verdict)
        except Conflict:
            state.done["Conflict"] += 1
            return isinstance(verdict, str) or not verdict.replacements
        except (Transient, Rejected) as error:
            state.failures.add(error, f"move {move.id}")
        return True

    def _exceeds(self, proposal: Proposal) -> str:
        """Return which quota the replacements would exceed, together with those of moves before; empty if none.

        Nodes of static NodePools are planned apart from all others.
        """
        inputs, claims = self._inputs, intents(proposal.replacements, self._inputs.now)
        ledger = replace(inputs.ledger, claims=(*inputs.ledger.claims, *self._claims))
        return exceeded(claims, inputs.snapshot, ledger, inputs.settings, inputs.now) if claims else ""

    def _go_on(self, move: Move, proposal: Proposal) -> None:
        reason = proposal.message or move.message
        details = {
            "saving_hourly_usd": proposal.saving_hourly_usd,
            "eviction_cost": proposal.eviction_cost,
            "message": reason,
        }
        names = tuple(node.claim.name for node in proposal.replacements)
        stage = Stage.REPLACING if names else Stage.ENDING
        next_move = move.at(stage, self._inputs.now, sources=proposal.sources, replacements=names, **details)
        if names:
            self._buy(next_move, proposal)
        else:
            self._state.run.store.save_move(next_move)
        note_decision(self._state, next_move)
        note_failed_validation(self._state, move, next_move.sources)
        sources, pools = (
            self._state.claims(next_move.sources),
            parsed_nodepools(self._state.snapshot.nodepools),
        )
        approved = events.of_approval(next_move, sources, pools)
        self._state.run.publish_new([*approved, *events.of_launches(next_move)])

    def _buy(self, move: Move, proposal: Proposal) -> None:
        """Buy the replacements. Each commit increments the ledger's version."""
        state, inputs, run = self._state, self._inputs, self._state.run
        ledger = replace(inputs.ledger, version=inputs.ledger.version + self._bought)
        current = replace(inputs, ledger=replace(ledger, claims=(*ledger.claims, *self._claims)))
        try:
            claim_commitments(run.commitments, current, proposal.replacements, inputs.now)
            settled = buy(run, proposal.replacements, ledger, self._types, inputs.decision, move)
        except Conflict:
            if not self._bought:
                state.supersede(inputs.decision, self._written)
            raise
        self._bought += 1
        self._claims += intents(proposal.replacements, inputs.now)
        state.keep_snapshot(inputs.decision)
        state.done["NodeClaimsLaunched"] += len(settled.launched)
        state.done["NodeClaimsGivenUp"] += len(settled.given_up)
        run.wake(Concern.LIFECYCLE, "claims changed")
        if settled.deferred:
            run.wake(Concern.PROVISIONING, "launches are to be repeated", 5)


def back_off(state: RunState, step: Abandon) -> None:
    """Record that a move's replacements could not be had. Repeating the same call changes nothing."""
    backoffs = state.ledger.move_backoffs
    for kind in _kinds(state, step.move) if step.failed else ():
        state.run.store.save_move_backoff(
            kind, next_backoff(backoffs.get(kind), step.message, state.run.clock())
        )


def hold_off(state: RunState, step: moves.Retry) -> None:
    """Record that moves of this kind wait until a minute after this attempt. The count of failures does not grow."""
    until = step.move.stage_since + RETRIED_AFTER
    for kind in _kinds(state, step.move) if until > state.run.clock() else ():
        previous = state.ledger.move_backoffs.get(kind)
        if previous is None or previous.until < until:
            backoff = Backoff(until, previous.failures if previous else 0, step.message)
            state.run.store.save_move_backoff(kind, backoff)


def clear_backoff(state: RunState, move: Move) -> None:
    """Clear the back-off after a move got its replacements, so that the next failure counts as the first."""
    for kind in _kinds(state, move) if move.replacements else ():
        if kind in state.ledger.move_backoffs:
            state.run.store.save_move_backoff(kind, None)


def _kinds(state: RunState, move: Move) -> list[MoveKind]:
    pools = {claim.nodepool for claim in state.claims(move.sources)}
    return [MoveKind(pool, move.reason.value) for pool in sorted(pools)]
