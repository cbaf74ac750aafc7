"""Which changes let the end of a node proceed, and which can wait because no node ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from nodesmith.observation.mirror import ATTACHMENTS, BUDGETS, NODECLAIMS, NODES, PODS, Change
from nodesmith.observation.observed import ended_by
from nodesmith_forwarder.manifests import is_wanted_otherwise


def moves_a_drain(change: Change, ending: Collection[str]) -> bool:
    """Return whether a change begins the end of a node, or may let one in progress proceed.

    `ending` are the nodes that end. A budget that allows less, or a pod that becomes unready while it terminates, lets
    nothing proceed.
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
    """Return whether a change can wait for the next snapshot, because it concerns only evictions.

    Pods become ready, and budgets count them, all the time. The snapshot holds no attachment of a volume that stays.
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
    """Return whether a budget is gone, has another spec, or allows more disruptions."""
    if change.after is None or change.before["spec"] != change.after["spec"]:
        return True
    return allowed(change.after) > allowed(change.before)


def allowed(budget: Mapping[str, Any]) -> int:
    """Return how many disruptions a reduced PodDisruptionBudget allows."""
    return int(budget["status"].get("disruptionsAllowed") or 0)
