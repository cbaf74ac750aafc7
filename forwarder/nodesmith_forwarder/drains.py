"""What brings the end of a node forward, and what may wait because no node ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from nodesmith.observation.endingnodes import ended_by
from nodesmith.observation.mirror import ATTACHMENTS, BUDGETS, NODECLAIMS, NODES, PODS, Change
from nodesmith_forwarder.manifests import is_wanted_otherwise


def moves_a_drain(change: Change, ending: Collection[str]) -> bool:
    """Return whether a change begins the end of a node, or may let one that has begun go on.

    `ending` are the nodes that end. A budget that shrinks, or a pod that is no longer ready while it ends, lets nothing
    go on.
    """
    states = [state for state in (change.before, change.after) if state is not None]
    match change.kind.name:
        case NODES.name:
            return change.key in ending or any(map(ended_by, states))
        case NODECLAIMS.name:
            is_leaving = any("deletionTimestamp" in state["metadata"] for state in states)
            return is_leaving and is_wanted_otherwise(change)
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
    """Return whether a change may wait until the snapshot is written next: it says something of evictions only.

    Pods become ready, and budgets count them, all the time. Volumes that stay where they are are in no snapshot.
    """
    if change.kind == ATTACHMENTS:
        return not any(state and state.node in ending for state in (change.before, change.after))
    counts_only = change.kind == BUDGETS and not is_wanted_otherwise(change)
    return (counts_only or _is_only_readiness(change)) and not moves_a_drain(change, ending)


def _is_only_readiness(change: Change) -> bool:
    before, after = change.before, change.after
    if change.kind != PODS or before is None or after is None or before.ready == after.ready:
        return False
    return bool(replace(before, ready=after.ready) == after)


def _allows_more(change: Change) -> bool:
    """Return whether a budget is gone, is another one, or counts more pods that may go."""
    if change.after is None or change.before["spec"] != change.after["spec"]:
        return True
    return allowed(change.after) > allowed(change.before)


def allowed(budget: Mapping[str, Any]) -> int:
    """Return how many pods a reduced PodDisruptionBudget lets go."""
    return int(budget["status"].get("disruptionsAllowed") or 0)
