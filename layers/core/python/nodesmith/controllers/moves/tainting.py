"""Tainting the source nodes of moves against new pods, and removing the taint if the move is abandoned.

Meanwhile their NodeClaims show the condition `DisruptionReason`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nodesmith.controllers.moves.look import Look
from nodesmith.decisions.disruption import notifications
from nodesmith.model.apimachinery.taints import DISRUPTED
from nodesmith.model.karpenter.nodeclaimconditions import DISRUPTION_REASON, ObjectCondition, condition_item
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.ledger.moves import Move, Reason, Stage

_CLOSED, _OPENED = NodePatch({}, add_taints=(DISRUPTED,)), NodePatch({}, remove_taints=(DISRUPTED,))


def close(look: Look, claims: Sequence[NodeClaim], reason: Reason) -> None:
    """Taint the claims' Nodes so that no more pods are scheduled there, and show the reason on the NodeClaims."""
    _patch(look, claims, _CLOSED)
    _show(look, claims, "True", reason.value)


def open_again(look: Look, claims: Sequence[NodeClaim]) -> None:
    """Remove the taint from the claims' Nodes, and the reason from the NodeClaims."""
    _patch(look, claims, _OPENED)
    _show(look, claims, "False")


def abandon(look: Look, move: Move, why: str) -> None:
    """Abandon a move. Nodes that were bought for it are removed later."""
    left = look.run.store.save_move(move.at(Stage.ABANDONED, look.run.clock(), why=why))
    look.done["MovesAbandoned"] += 1
    sources = [claim for claim in look.claims(move.sources) if not claim.is_ending]
    open_again(look, sources)
    look.run.publish_new(notifications.of_abandoning(left, sources))


def _patch(look: Look, claims: Iterable[NodeClaim], patch: NodePatch) -> None:
    for claim in claims:
        if claim.node_name:
            look.run.cluster.register_node(claim.node_name, replace(patch, provider_id=claim.provider_id))


def _show(look: Look, claims: Iterable[NodeClaim], status: str, reason: str = "") -> None:
    shown = condition_item(ObjectCondition(DISRUPTION_REASON, status, look.run.clock(), reason, ""))
    for claim in claims:
        look.run.cluster.merge_status("NodeClaim", claim.name, {"conditions": [shown]})
