"""Which changes let a node's drain proceed or may allow another disruption, and which can wait as no node ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.observation.mirror import ATTACHMENTS, BUDGETS, NODECLAIMS, NODEPOOLS, NODES, PODS, Change
from nodesmith.observation.observed import ended_by
from nodesmith.observation.reduction.pods import ReducedPod


def affects_drain(change: Change, ending: Collection[str]) -> bool:
    """Return whether a change starts the drain of a node, or may let one in progress proceed.

    `ending` are the nodes that end. No drain proceeds because a budget allows less, or because a terminating pod
    becomes unready.
    """
    states = [state for state in (change.before, change.after) if state is not None]
    match change.kind.name:
        case NODES.name:
            return change.key in ending or any(map(ended_by, states))
        case NODECLAIMS.name:
            is_leaving = any("deletionTimestamp" in state["metadata"] for state in states)
            return is_leaving and changes_more_than_status(change)
        case PODS.name:
            is_there = any(state.node in ending for state in states)
            return is_there and not (_is_only_readiness(change) and change.after.deleting)
        case BUDGETS.name:
            return bool(ending) and change.before is not None and _allows_more(change)
        case ATTACHMENTS.name:
            return change.after is None and change.before.node in ending
        case _:
            return False


def can_wait(change: Change, ending: Collection[str]) -> bool:
    """Return whether a change can wait for the next snapshot, because it concerns only evictions.

    Pods become ready, and budgets count them, all the time. The snapshot holds no attachment of a volume that stays.
    """
    if change.kind == ATTACHMENTS:
        return not any(state and state.node in ending for state in (change.before, change.after))
    counts_only = change.kind == BUDGETS and not changes_more_than_status(change)
    return (counts_only or _is_only_readiness(change)) and not affects_drain(change, ending)


def _is_only_readiness(change: Change) -> bool:
    before, after = change.before, change.after
    if change.kind != PODS or before is None or after is None:
        return False
    return bool(replace(before, ready=after.ready, starting=after.starting) == after)


def _allows_more(change: Change) -> bool:
    """Return whether a budget is gone, has another spec, or allows more disruptions."""
    if change.after is None or change.before["spec"] != change.after["spec"]:
        return True
    return allowed(change.after) > allowed(change.before)


def allowed(budget: Mapping[str, Any]) -> int:
    """Return how many disruptions a reduced PodDisruptionBudget allows."""
    return int(budget["status"].get("disruptionsAllowed") or 0)


def may_free_node(change: Change, ending: Collection[str]) -> bool:
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
    """Return whether a pod leaves its node or changes its shape: it may request less or lose do-not-disrupt."""
    return after is None or (after.deleting and not before.deleting) or after.shape != before.shape


def _is_opened(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a Node loses do-not-disrupt, or serves again, so that budgets allow another node to go."""
    was_protected, is_protected = (
        DO_NOT_DISRUPT in (node["metadata"].get("annotations") or {}) for node in (before, after)
    )
    return (was_protected and not is_protected) or (_serves(after) and not _serves(before))


def _serves(node: Mapping[str, Any]) -> bool:
    """Return whether a Node is Ready and not part of a move."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    is_ready = any(
        (condition.get("type"), condition.get("status")) == ("Ready", "True") for condition in conditions
    )
    return is_ready and not ended_by(node)


def is_of_foreign_nodepool(change: Change) -> bool:
    """Return whether the change concerns a NodePool that belongs to another controller, before and after."""
    states = [state for state in (change.before, change.after) if state is not None]
    return change.kind == NODEPOOLS and all(map(is_foreign, states))


def changes_more_than_status(change: Change) -> bool:
    """Return whether more than the status has changed; nodesmith itself writes the status of Karpenter's objects."""
    return _without_status(change.before) != _without_status(change.after)


def conditions(manifest: Mapping[str, Any] | None) -> Any:
    """Return the conditions of an object, or None if the object or its conditions are missing."""
    return ((manifest or {}).get("status") or {}).get("conditions")


def _without_status(manifest: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return manifest and {part: value for part, value in manifest.items() if part != "status"}
