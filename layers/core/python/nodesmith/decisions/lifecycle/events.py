"""Events on NodeClaim objects: only problems, each when it begins. Reasons are Karpenter's."""

from __future__ import annotations

from nodesmith.decisions.lifecycle.stages import MISNAMED
from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.apimachinery.taints import UNREGISTERED
from nodesmith.model.commands import Command, Forget, GiveUp, Register, Wait
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.nodes import Node

_KARPENTERS = {"InsufficientCapacity": "InsufficientCapacityError"}
_WARNED_OF = frozenset({"MultipleNodesFound", MISNAMED})
"""Reasons for waiting that are not part of a normal start."""


def trouble(before: NodeClaim, command: Command, node: Node | None) -> tuple[str, str] | None:
    """Return the reason and message of the Event for a command, None if nothing is wrong.

    `before` is the claim in the ledger: a repeated command causes no Event.
    """
    claim = command.claim
    match command:
        case Register() if node is not None and _came_open(node):
            return "UnregisteredTaintMissing", f"Node {node.name} joined without the taint {UNREGISTERED}"
        case Wait() if claim.inconsistency not in {"", before.inconsistency}:
            return "FailedConsistencyCheck", claim.inconsistency
        case Wait() if claim.reason in _WARNED_OF and claim.reason != before.reason:
            return claim.reason, claim.message
        case GiveUp():
            return claim.reason, claim.message
        case Forget() if claim.launched_at is None:  # the launch failed
            return _KARPENTERS.get(claim.reason, claim.reason), claim.message
        case _:
            return None


def _came_open(node: Node) -> bool:
    """Return whether pods may have been bound before the Node had its claim's taints."""
    return REGISTERED not in node.labels and all(t.identity != UNREGISTERED.identity for t in node.taints)
