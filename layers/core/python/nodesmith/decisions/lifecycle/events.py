"""What is said of a claim as an Event on its object: troubles only, each when it begins. Reasons are Karpenter's."""

from __future__ import annotations

from nodesmith.decisions.lifecycle.stages import MISNAMED
from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.apimachinery.taints import UNREGISTERED
from nodesmith.model.commands import Command, Forget, GiveUp, Register, Wait
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.nodes import Node

_KARPENTERS = {"InsufficientCapacity": "InsufficientCapacityError"}
_WARNED_OF = frozenset({"MultipleNodesFound", MISNAMED})
"""What a claim may wait for that is no part of a usual start."""


def trouble(before: NodeClaim, command: Command, node: Node | None) -> tuple[str, str] | None:
    """Return reason and message of the Event that goes with a command, None where nothing is wrong.

    `before` is the claim as the ledger holds it: a command that is repeated says nothing new.
    """
    claim = command.claim
    match command:
        case Register() if node is not None and _came_open(node):
            return "UnregisteredTaintMissing", f"Node {node.name} came without the taint {UNREGISTERED}"
        case Wait() if claim.inconsistency not in {"", before.inconsistency}:
            return "FailedConsistencyCheck", claim.inconsistency
        case Wait() if claim.reason in _WARNED_OF and claim.reason != before.reason:
            return claim.reason, claim.message
        case GiveUp():
            return claim.reason, claim.message
        case Forget() if claim.launched_at is None:  # given up where it was launched
            return _KARPENTERS.get(claim.reason, claim.reason), claim.message
        case _:
            return None


def _came_open(node: Node) -> bool:
    """Return whether pods may have been bound before the Node had its claim's taints."""
    return REGISTERED not in node.labels and all(t.identity != UNREGISTERED.identity for t in node.taints)
