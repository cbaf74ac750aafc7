"""Which changes may allow the disruption of a node that could not be disrupted before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.observation.mirror import BUDGETS, NODES, PODS, Change
from nodesmith.observation.observed import ended_by
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith_forwarder.drains import allowed


def may_free_a_node(change: Change, ending: Collection[str]) -> bool:
    """Return whether a change leaves a node with less to do, or removes an obstacle to its disruption.

    `ending` are the nodes that end: their pods, and what budgets allow meanwhile, concern termination. A new pod never
    leaves a node with less to do, and neither do DaemonSets' pods.
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
    """Return whether a pod leaves its node or changes its shape, such as less room or no more do-not-disrupt."""
    return after is None or (after.deleting and not before.deleting) or after.shape != before.shape


def _is_opened(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a Node loses do-not-disrupt, or serves again, so that budgets allow another node to go."""
    asked, asks = (DO_NOT_DISRUPT in (each["metadata"].get("annotations") or {}) for each in (before, after))
    return (asked and not asks) or (_serves(after) and not _serves(before))


def _serves(node: Mapping[str, Any]) -> bool:
    """Return whether a Node is Ready and not part of a move."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    is_ready = any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions)
    return is_ready and not ended_by(node)
