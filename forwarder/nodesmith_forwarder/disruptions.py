"""What may let a node be disrupted that has had to stay so far."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.observation.endingnodes import ended_by
from nodesmith.observation.mirror import BUDGETS, NODES, PODS, Change
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith_forwarder.drains import allowed


def may_free_a_node(change: Change, ending: Collection[str]) -> bool:
    """Return whether a change leaves a node with less to do, or takes away what has kept it.

    `ending` are the nodes that end: what becomes of their pods, and what budgets allow meanwhile, is termination's. A
    pod that comes leaves no node with less to do, and DaemonSets' pods never do.
    """
    before, after = change.before, change.after
    if before is None:
        return False
    match change.kind.name:
        case PODS.name:
            return bool(before.moved) and before.node not in ending and _needs_less(before, after)
        case NODES.name:
            return after is not None and change.key not in ending and _is_opened(before, after)
        case BUDGETS.name:
            return not ending and allowed(before) == 0 and (after is None or allowed(after) > 0)
        case _:
            return False


def _needs_less(before: ReducedPod, after: ReducedPod | None) -> bool:
    """Return whether a pod leaves its node, or asks for something else: less room, or not to be left in place."""
    return after is None or (after.deleting and not before.deleting) or after.shape != before.shape


def _is_opened(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a Node asks no longer to be left alone, or serves again, so that budgets let another go."""
    asked, asks = (DO_NOT_DISRUPT in (each["metadata"].get("annotations") or {}) for each in (before, after))
    return (asked and not asks) or (_serves(after) and not _serves(before))


def _serves(node: Mapping[str, Any]) -> bool:
    """Return whether a Node is Ready, and no move takes it."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    is_ready = any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions)
    return is_ready and not ended_by(node)
