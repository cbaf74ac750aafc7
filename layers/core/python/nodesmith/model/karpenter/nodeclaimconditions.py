"""Conditions of NodeClaim objects: what each says of a claim, in Karpenter's types and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import DEADLINE_PASSED, NOT_REGISTERED, REACHED_AT, NodeClaim, Phase
from nodesmith.model.kubernetes.messages import AWAITING

DELETED = "Deleted"
"""The cause of an end that somebody has asked for by deleting the Node, its NodeClaim or its NodePool."""
DRAINING = "Draining"
"""What an end waits for that needs nobody: pods are leaving, each within its grace."""
LIFE: Mapping[str, Phase] = {
    "Launched": Phase.LAUNCHED,
    "Registered": Phase.REGISTERED,
    "Initialized": Phase.INITIALIZED,
}
END: Mapping[str, Phase] = {
    "Drained": Phase.DRAINED,
    "VolumesDetached": Phase.DETACHED,
    "InstanceTerminating": Phase.TERMINATED,
}
"""Conditions of the object on the way to a Node, and on the way out: in order, the phase that is reached with each."""
CONSISTENT = "ConsistentStateFound"
DISRUPTION_REASON = "DisruptionReason"
"""The condition whose reason is what a NodeClaim is disrupted for, from when a move takes it or its end begins.

An end that somebody has asked for is no disruption.
"""
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
LAUNCHED = "Launched"
"""The condition that stays True once it is: a refusal of an earlier decision is out of date then."""
SHOWN_WHILE_TRUE = frozenset({CONSOLIDATABLE, DISRUPTION_REASON, DRIFTED})
"""Conditions of NodeClaims that are taken off when they hold no longer, as Karpenter's are."""
_REFUTING = frozenset({"MultipleNodesFound"})
"""Reasons that say no; all others say not yet."""


class ObjectCondition(NamedTuple):
    """A condition of the NodeClaim object: `status` is True, False or Unknown; `since` is None for from now on."""

    type: str
    status: str
    since: datetime | None
    reason: str
    message: str

    @property
    def is_over(self) -> bool:
        """Whether the object is to show no such condition any more."""
        return self.type in SHOWN_WHILE_TRUE and self.status == "False"


def conditions_of(claim: NodeClaim) -> Iterator[ObjectCondition]:
    """Say of each stage whether it is reached; the first that is not carries the claim's reason."""
    stages = list(_stages(claim))
    yield from stages
    yield _ready(claim, [each for each in stages if each.status != "True"])
    if claim.initialized_at is not None:
        yield _consistent(claim, claim.initialized_at)
    if claim.drifted_at is not None:  # False where it has ended: see SHOWN_WHILE_TRUE
        yield ObjectCondition(DRIFTED, str(bool(claim.drift)), claim.drifted_at, claim.drift, "")
    if claim.terminating_at is not None:
        yield from _end(claim, claim.terminating_at)


def _stages(claim: NodeClaim) -> Iterator[ObjectCondition]:
    is_next, later = True, AWAITING if claim.launched_at is None else NOT_REGISTERED
    for stage, phase in LIFE.items():
        at = getattr(claim, REACHED_AT[phase])
        if at is not None:
            yield ObjectCondition(stage, "True", at, stage, "")
        elif is_next and (claim.phase is Phase.GIVEN_UP or claim.reason in _REFUTING):
            yield ObjectCondition(
                stage, "False", _refuted_at(claim), claim.reason or AWAITING[0], claim.message
            )
        else:
            said = (claim.reason, claim.message) if claim.reason else AWAITING
            yield ObjectCondition(stage, "Unknown", claim.created_at, *(said if is_next else later))
        is_next = is_next and at is not None


def _ready(claim: NodeClaim, pending: Sequence[ObjectCondition]) -> ObjectCondition:
    """Sum the stages up, in Karpenter's words."""
    if not pending:
        return ObjectCondition("Ready", "True", claim.initialized_at or claim.phase_since, "Ready", "")
    message = ", ".join(f"{each.type}={each.status}" for each in pending)
    if any(each.status == "False" for each in pending):
        return ObjectCondition("Ready", "False", _refuted_at(claim), "UnhealthyDependents", message)
    return ObjectCondition("Ready", "Unknown", claim.created_at, "ReconcilingDependents", message)


def _refuted_at(claim: NodeClaim) -> datetime | None:
    return claim.phase_since if claim.phase is Phase.GIVEN_UP else None


def _consistent(claim: NodeClaim, since: datetime) -> ObjectCondition:
    if claim.inconsistency:
        return ObjectCondition(CONSISTENT, "False", None, "ConsistencyCheckFailed", claim.inconsistency)
    return ObjectCondition(CONSISTENT, "True", since, CONSISTENT, "")


def _end(claim: NodeClaim, since: datetime) -> Iterator[ObjectCondition]:
    """Yield how far its end has come, and what for; the step that it is at carries the claim's reason."""
    if claim.cause not in {"", DELETED}:
        yield ObjectCondition(DISRUPTION_REASON, "True", since, claim.cause, "")
    at_work = True
    for step, phase in END.items():
        reached = getattr(claim, REACHED_AT[phase])
        if reached is not None:
            why, _, left = claim.cause_of(phase).partition(": ")
            is_done = why != DEADLINE_PASSED
            if phase is Phase.TERMINATED and claim.instance_gone_at is not None:
                left = claim.message  # what holds its Node
            yield ObjectCondition(step, str(is_done), reached, step if is_done else why, left)
        else:
            reason, message = (claim.reason, claim.message) if at_work and claim.reason else AWAITING
            reason = DRAINING if reason == claim.cause else reason  # it has only just begun
            yield ObjectCondition(step, "Unknown", since, reason, message)
            at_work = False


def condition_item(condition: ObjectCondition) -> dict[str, Any]:
    """Write a condition as a NodeClaim shows it."""
    since = {} if condition.since is None else {"lastTransitionTime": format_time(condition.since)}
    return {
        "type": condition.type,
        "status": condition.status,
        **since,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": 1,  # a NodeClaim's spec never changes
    }


def shown_status(manifest: Mapping[str, Any], kind: str) -> str:
    """Read the status of a condition that an object shows; empty where it shows none of that kind. Never raises."""
    status = manifest.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    found = (each for each in conditions or () if isinstance(each, Mapping) and each.get("type") == kind)
    return next((str(each.get("status")) for each in found), "")
