"""Conditions of NodeClaim objects, in Karpenter's types and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import DEADLINE_PASSED, NOT_REGISTERED, REACHED_AT, NodeClaim, Phase
from nodesmith.model.kubernetes.events import AWAITING

DELETED = "Deleted"
"""The cause of an end that a user requested by deleting the Node, its NodeClaim or its NodePool."""
DRAINING = "Draining"
"""The reason of an end that needs no intervention: pods are leaving, each within its grace period."""
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
"""Conditions of the object in order, on the way to a Node (LIFE) and on the way out (END) → the phase of each."""
CONSISTENT = "ConsistentStateFound"
DISRUPTION_REASON = "DisruptionReason"
"""The condition whose reason is the reason of the NodeClaim's disruption.

It is set when a move takes the NodeClaim or when its end begins. An end that a user requested is no disruption.
"""
CONSOLIDATABLE = "Consolidatable"
DRIFTED = "Drifted"
LAUNCHED = "Launched"
"""The condition that stays True once it is True. From then on, an earlier refusal is out of date."""
SHOWN_WHILE_TRUE = frozenset({CONSOLIDATABLE, DISRUPTION_REASON, DRIFTED})
"""Conditions that are removed from a NodeClaim when they no longer hold, as Karpenter does."""
_REFUTING = frozenset({"MultipleNodesFound"})
"""Reasons for status False. All other reasons mean Unknown."""


class ObjectCondition(NamedTuple):
    """A condition of a NodeClaim object. `status` is True, False or Unknown. `since` is None for a change just now."""

    type: str
    status: str
    since: datetime | None
    reason: str
    message: str

    @property
    def is_over(self) -> bool:
        """Whether the condition must be removed from the object."""
        return self.type in SHOWN_WHILE_TRUE and self.status == "False"


def conditions_of(claim: NodeClaim) -> Iterator[ObjectCondition]:
    """Yield the conditions of a claim. The first stage that it has not reached carries the claim's reason."""
    stages = list(_stages(claim))
    yield from stages
    yield _ready(claim, [each for each in stages if each.status != "True"])
    if claim.initialized_at is not None:
        yield _consistent(claim, claim.initialized_at)
    if claim.drifted_at is not None:  # False once drift has ended: see SHOWN_WHILE_TRUE
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
    """Summarize the stages in Karpenter's words."""
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
    """Yield the conditions of a claim's end. The step in progress carries the claim's reason."""
    if claim.cause not in {"", DELETED}:
        yield ObjectCondition(DISRUPTION_REASON, "True", since, claim.cause, "")
    at_work = True
    for step, phase in END.items():
        reached = getattr(claim, REACHED_AT[phase])
        if reached is not None:
            why, _, left = claim.cause_of(phase).partition(": ")
            is_done = why != DEADLINE_PASSED
            if phase is Phase.TERMINATED and claim.instance_gone_at is not None:
                left = claim.message  # names what still holds its Node
            yield ObjectCondition(step, str(is_done), reached, step if is_done else why, left)
        else:
            reason, message = (claim.reason, claim.message) if at_work and claim.reason else AWAITING
            reason = DRAINING if reason == claim.cause else reason  # the end has only just begun
            yield ObjectCondition(step, "Unknown", since, reason, message)
            at_work = False


def condition_item(condition: ObjectCondition) -> dict[str, Any]:
    """Write a condition as it appears in a NodeClaim's status."""
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
    """Return the status of an object's condition of type `kind`, empty if it has none. Never raises."""
    status = manifest.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    found = (each for each in conditions or () if isinstance(each, Mapping) and each.get("type") == kind)
    return next((str(each.get("status")) for each in found), "")
