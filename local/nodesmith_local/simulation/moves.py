"""Carries out moves in the simulated cluster, by the steps that the disruption function takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from nodesmith.decisions.disruption import moves as steps
from nodesmith.decisions.disruption.moves import LookAgain, StepInputs, next_step
from nodesmith.decisions.disruption.proposals import Proposal, in_batches
from nodesmith.decisions.disruption.search.search import look_again, may_end
from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.scheduling.offerings.quotas import exceeded
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.learned import next_backoff
from nodesmith.model.ledger.moves import Move, MoveKind, Reason, Stage
from nodesmith_local.simulation.fleet import Fleet, is_tainted

SEEN_WITHIN = timedelta(seconds=5)
"""The time within which a snapshot shows a new taint."""
_MOST_STEPS = 6


@dataclass(slots=True)
class Moves:
    """The moves of a simulated cluster."""

    fleet: Fleet

    def propose(self, proposals: Sequence[Proposal], inputs: Inputs) -> None:
        """Begin the moves of a search."""
        for number, batch in enumerate(in_batches(proposals)):
            id_ = f"{inputs.decision}-{number}"
            now = inputs.now
            move = Move(
                id_,
                batch.reason,
                batch.sources,
                Stage.PROPOSED,
                now,
                now,
                eviction_cost=batch.eviction_cost,
                message=batch.message,
            )
            self.fleet.cluster.moves[id_] = move
            self._taint(move.sources)
            wait = SEEN_WITHIN if move.reason is Reason.DRIFTED else steps.SECOND_LOOK
            self.fleet.wake("disrupt", now + wait)

    def carry_on(self) -> None:
        """Take every move as far as possible now."""
        if not self.fleet.cluster.moves:
            return
        self._validate()
        for id_ in list(self.fleet.cluster.moves):
            for _ in range(_MOST_STEPS):
                move = self.fleet.cluster.moves.get(id_)
                if move is None or not self._take_step(move):
                    break

    def _step_inputs(self) -> StepInputs:
        inputs = self.fleet.cluster.inputs("scene")
        return StepInputs.of(inputs.snapshot, inputs.ledger, inputs.now)

    def _take_step(self, move: Move) -> bool:
        """Take a move one step further; return whether another may follow at once."""
        step = next_step(move, self._step_inputs())
        match step:
            case steps.Taint() | steps.Await() | steps.LookAgain():
                self._await(step)
                return False
            case steps.Conclude():
                self._conclude(move)
            case steps.EndSources():
                self.fleet.end(step.claims)
                self._back_off(move, None)
                del self.fleet.cluster.moves[move.id]
            case steps.Abandon():
                if step.failed:
                    self._back_off(move, step.message)
                self._abandon(move, step.message)
            case steps.Retry():
                raise AssertionError("EC2 always answers in a simulation")
            case steps.TerminateUnused():
                self.fleet.end(step.claims)
            case steps.ForgetMove():
                del self.fleet.cluster.moves[move.id]
            case _:
                assert_never(step)
        return True

    def _await(self, step: steps.Taint | steps.Await | steps.LookAgain) -> None:
        if isinstance(step, steps.Taint):
            self._taint(claim.name for claim in step.claims)
        wait = timedelta(seconds=1) if isinstance(step, steps.LookAgain) else step.wait
        if wait is not None:
            self.fleet.wake("disrupt", self.fleet.cluster.now + wait)

    def _conclude(self, move: Move) -> None:
        """Let the sources of a move end now that its replacements are ready, unless something new prevents it."""
        reason = may_end(move, self.fleet.cluster.inputs(move.id))
        if reason:
            self._abandon(move, reason)
        else:
            self.fleet.cluster.moves[move.id] = move.at(Stage.ENDING, self.fleet.cluster.now)

    def _validate(self) -> None:
        """Validate the moves that are due together, and buy their replacements or let their sources end."""
        scene = self._step_inputs()
        due = [m for m in self.fleet.cluster.moves.values() if isinstance(next_step(m, scene), LookAgain)]
        if not due:
            return
        inputs = self.fleet.cluster.inputs("again")
        bought_claims: list[NodeClaim] = []
        for id_, verdict in look_again(due, inputs).items():
            move = self.fleet.cluster.moves[id_]
            if isinstance(verdict, str):
                self._abandon(move, verdict)
                continue
            claims = [node.claim for node in verdict.replacements]
            ledger = replace(inputs.ledger, claims=(*inputs.ledger.claims, *bought_claims))
            reason = exceeded(claims, inputs.snapshot, ledger, inputs.settings, inputs.now) if claims else ""
            if reason:
                self._abandon(move, reason)
                continue
            bought_claims += claims
            stage = Stage.REPLACING if claims else Stage.ENDING
            names = tuple(claim.name for claim in claims)
            self.fleet.cluster.moves[id_] = move.at(
                stage, inputs.now, sources=verdict.sources, replacements=names
            )
            self.fleet.buy(verdict.replacements)

    def _abandon(self, move: Move, reason: str) -> None:
        self.fleet.cluster.moves[move.id] = move.at(Stage.ABANDONED, self.fleet.cluster.now, message=reason)
        for name in move.sources:
            claim = self.fleet.cluster.claims.get(name)
            node = self.fleet.cluster.nodes.get(claim.node_name) if claim is not None else None
            if claim is not None and node is not None and not claim.is_ending:
                remaining = tuple(taint for taint in node.taints if taint.identity != DISRUPTED.identity)
                self.fleet.cluster.nodes[node.name] = replace(node, taints=remaining)
        self.fleet.cluster.changes += 1
        self.fleet.wake("disrupt", self.fleet.cluster.now + steps.REMEMBERED)
        self.fleet.wake("provision", self.fleet.cluster.now)

    def _back_off(self, move: Move, reason: str | None) -> None:
        """Note that a move's replacements could not be had, or with None that they could."""
        ledger, backoffs = self.fleet.cluster.base.ledger, dict(self.fleet.cluster.base.ledger.move_backoffs)
        for name in move.sources:
            claim = self.fleet.cluster.claims.get(name)
            if claim is None:
                continue
            kind = MoveKind(claim.nodepool, move.reason.value)
            if reason is None:
                backoffs.pop(kind, None)
            else:
                backoffs[kind] = next_backoff(backoffs.get(kind), reason, self.fleet.cluster.now)
        self.fleet.cluster.base = replace(
            self.fleet.cluster.base, ledger=replace(ledger, move_backoffs=backoffs)
        )

    def _taint(self, names: Iterable[str]) -> None:
        for name in names:
            claim = self.fleet.cluster.claims.get(name)
            node = self.fleet.cluster.nodes.get(claim.node_name) if claim is not None else None
            if node is not None and not is_tainted(node.taints):
                self.fleet.cluster.nodes[node.name] = replace(node, taints=(*node.taints, DISRUPTED))
