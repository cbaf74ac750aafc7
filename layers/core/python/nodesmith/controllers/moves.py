"""Carrying out moves, a step at a time: first the ledger says what is to be, then cluster and EC2 are told.

A crash after any call leaves a move in the stage that was written; the next run takes the same step again, or goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import assert_never

from nodesmith.controllers.buying import TypeTable, buy, committable
from nodesmith.controllers.look import Look
from nodesmith.decisions.disruption import movesteps, telling
from nodesmith.decisions.disruption.leftovers import empty
from nodesmith.decisions.disruption.movesteps import Step
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.record import record
from nodesmith.decisions.disruption.search import look_again, may_end
from nodesmith.decisions.disruption.stages import next_step
from nodesmith.decisions.provisioning import Inputs
from nodesmith.effects import begin_end
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.commands import End
from nodesmith.model.events import Concern
from nodesmith.model.moves import Move, Reason, Stage
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.nodes import NodePatch
from nodesmith.model.taints import DISRUPTED

MOST_STEPS = 6
"""of one move in one run: more than there are stages"""
LONGEST = timedelta(seconds=40)
"""After so long a run leaves the other moves to the next: it may not last longer than a minute."""
_CLOSED, _OPENED = NodePatch({}, add_taints=(DISRUPTED,)), NodePatch({}, remove_taints=(DISRUPTED,))


def carry_on(look: Look) -> None:
    """Take every move as far as it goes now."""
    began = look.run.clock()
    for id_ in [move.id for move in look.ledger.moves]:
        if look.run.clock() - began > LONGEST:
            look.run.wake_me(timedelta(seconds=1))
            break
        for _ in range(MOST_STEPS):
            move = next((each for each in look.ledger.moves if each.id == id_), None)
            if move is None or not _goes_on(look, move):
                break


def _goes_on(look: Look, move: Move) -> bool:
    """Take a move a step further; tell whether there may be another one to take at once."""
    try:
        moved = _take(look, next_step(move, look.scene()))
        if moved:
            look.reload()
        return moved
    except Conflict:
        look.done["Conflict"] += 1  # another run has taken it further, or somebody one of its claims
        look.reload()
        look.run.wake_me(timedelta(seconds=5))
    except (Transient, Rejected) as error:
        look.failures.append(f"move {move.id}: {error}")
    return False


def _take(look: Look, step: Step) -> bool:
    run = look.run
    match step:
        case movesteps.Taint():
            close(look, step.claims)
            run.wake_me(step.wait)
            return False
        case movesteps.Await():
            if step.wait is not None:
                run.wake_me(step.wait)
            run.tell(telling.of_waiting(step.move, step.for_claims))
            return False
        case movesteps.LookAgain():
            return _second_look(look, step.move)
        case movesteps.Conclude():
            return _conclude(look, step.move)
        case movesteps.EndSources():
            return _end(look, step)
        case movesteps.Abandon():
            return _abandon(look, step.move, step.why)
        case movesteps.TidyUp():
            _end_all(look, step.claims)
            return True
        case movesteps.ForgetMove():
            run.store.forget_move(step.move)
            return True
        case _:
            assert_never(step)


def close(look: Look, claims: Iterable[NodeClaim]) -> None:
    """Let no more pods come to these claims' Nodes."""
    _patch(look, claims, _CLOSED)


def open_again(look: Look, claims: Iterable[NodeClaim]) -> None:
    """Let pods come to these claims' Nodes again."""
    _patch(look, claims, _OPENED)


def _patch(look: Look, claims: Iterable[NodeClaim], patch: NodePatch) -> None:
    for claim in claims:
        if claim.node_name:
            look.run.cluster.register_node(claim.node_name, replace(patch, provider_id=claim.provider_id))


def _second_look(look: Look, move: Move) -> bool:
    """Look again at a proposed move; where it stands, buy what replaces its sources, or let them end."""
    move, inputs = _still_empty(look, move), look.inputs(move.id)
    found = look_again(move, inputs)
    if isinstance(found, str):
        return _abandon(look, move, found)
    if len(committable(found.replacements)) < len(found.replacements):
        return _abandon(look, move, f"{len(found.replacements)} nodes are more than one commit takes")
    told = {"saving_hourly_usd": found.saving_hourly_usd, "harm": found.harm, "why": found.why or move.why}
    if not found.replacements:
        look.run.store.save_move(move.at(Stage.ENDING, inputs.now, **told))
        return True
    names = tuple(node.claim.name for node in found.replacements)
    _buy(look, inputs, found, move.at(Stage.REPLACING, inputs.now, replacements=names, **told))
    return True


def _still_empty(look: Look, move: Move) -> Move:
    """Let go of those of many empty nodes that pods have come to: the others may end all the same."""
    if move.reason is not Reason.EMPTY or len(move.sources) == 1:
        return move
    left = {claim.name for claim in empty(look.claims(move.sources), look.snapshot)}
    return replace(move, sources=tuple(name for name in move.sources if name in left) or move.sources[:1])


def _buy(look: Look, inputs: Inputs, found: Proposal, move: Move) -> None:
    run, written = look.run, record(inputs, [found], look.digest, move=move.id)
    look.write_down(inputs.decision, written)
    types = TypeTable(look.snapshot, inputs.catalog, run.settings, inputs.ledger)
    try:
        settled = buy(run, found.replacements, inputs.ledger, types, inputs.decision, move)
    except Conflict:
        look.supersede(inputs.decision, written)
        raise
    look.keep_snapshot(inputs.decision)
    look.done["NodeClaimsLaunched"] += len(settled.launched)
    look.done["NodeClaimsGivenUp"] += len(settled.given_up)
    run.wake(Concern.LIFECYCLE, "claims changed")
    if settled.deferred:
        run.wake(Concern.PROVISIONING, "launches are to be repeated", 5)
    run.tell(telling.of_launches(move))


def _conclude(look: Look, move: Move) -> bool:
    """Let sources end now that what replaces them is ready, unless something new stands in the way."""
    inputs = look.inputs(move.id)
    why = may_end(move, inputs)
    if why:
        return _abandon(look, move, why)
    look.run.store.save_move(move.at(Stage.ENDING, inputs.now))
    return True


def _end(look: Look, step: movesteps.EndSources) -> bool:
    """Let the sources of a move end. Termination drains them; provisioning buys for pods whose place was taken."""
    run = look.run
    _end_all(look, step.claims)
    look.done["NodesDisrupted"] += len(step.claims)
    look.done[f"NodesDisrupted{step.move.reason}"] += len(step.claims)
    run.wake(Concern.PROVISIONING, "nodes are disrupted")
    run.store.forget_move(step.move)
    run.tell(telling.of_ends(step.move, step.claims))
    return True


def _end_all(look: Look, claims: Iterable[NodeClaim]) -> None:
    for claim in claims:
        begin_end(End(claim), look.run.store, look.run.cluster)
    look.run.wake(Concern.TERMINATION, "nodes end")


def _abandon(look: Look, move: Move, why: str) -> bool:
    left = look.run.store.save_move(move.at(Stage.ABANDONED, look.run.clock(), why=why))
    look.done["MovesAbandoned"] += 1
    sources = [claim for claim in look.claims(move.sources) if not claim.is_ending]
    open_again(look, sources)
    look.run.tell(telling.of_abandoning(left, sources))
    return True
