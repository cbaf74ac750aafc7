"""Events on terminations, interruptions and evictions: Karpenter's reasons with nodesmith's messages.

A message stays the same while nothing changes, so that the Event is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith.decisions.termination.waiting import (
    AWAITING_NODE,
    AWAITING_REPLACEMENT,
    DELETION_DELAYED,
    VOLUMES,
)
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaimobjects import DRAINING
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.kubernetes.evictions import Evicted, Eviction, EvictionRefused, PodOnNode

_IN_TIME = frozenset({AWAITING_REPLACEMENT, AWAITING_NODE, DELETION_DELAYED, VOLUMES})
"""Reasons for waiting that usually pass without intervention."""


def of_deadline(claim: NodeClaim, node: str) -> list[ObjectEvent]:
    """Return Events on NodeClaim and Node with the deadline of the drain, none if there is no deadline."""
    if claim.deadline is None:
        return []
    why = (
        f"remaining pods are deleted in time for their grace periods to end by {format_time(claim.deadline)}"
    )
    objects = [("NodeClaim", claim.name), *([("Node", node)] if node else [])]
    return [ObjectEvent(*about, "TerminationGracePeriodExpiring", why, warning=True) for about in objects]


def of_waiting(claim: NodeClaim) -> list[ObjectEvent]:
    """Return Events with what a claim waits for: on the Node as Karpenter does, on the NodeClaim if it is unusual."""
    told: list[ObjectEvent] = []
    if not claim.reason:
        return told
    is_stuck = claim.reason not in _IN_TIME
    if claim.reason != DRAINING:
        told.append(ObjectEvent("NodeClaim", claim.name, claim.reason, claim.message, warning=is_stuck))
    if claim.node_name and claim.reason in {VOLUMES, DELETION_DELAYED, AWAITING_NODE}:
        told.append(ObjectEvent("Node", claim.node_name, claim.reason, claim.message))
    elif claim.node_name and claim.phase is Phase.TERMINATING and is_stuck:
        told.append(_failed_draining(claim.node_name, claim.message))
    return told


def _failed_draining(node: str, why: str) -> ObjectEvent:
    return ObjectEvent("Node", node, "FailedDraining", why, warning=True)


def of_evictions(
    claim: NodeClaim, pods: Iterable[PodOnNode], answers: Mapping[str, Eviction]
) -> list[ObjectEvent]:
    """Return Events on evicted pods with the cause, and on each Node with the first refused eviction."""
    told: list[ObjectEvent] = []
    refused: set[str] = set()
    for pod in pods:
        match answers.get(pod.pod):
            case Evicted(uid, before=False):
                why = f"evicted: Node {pod.node} is being terminated ({claim.cause})"
                told.append(ObjectEvent("Pod", pod.pod, "Evicted", why, uid=uid))
            case EvictionRefused(_, message) if pod.node not in refused:
                refused.add(pod.node)
                told.append(_failed_draining(pod.node, f"pod {pod.pod} stays for now: {message}"))
    return told


def of_deletions(
    claim: NodeClaim, pods: Iterable[PodOnNode], answers: Mapping[str, Eviction]
) -> list[ObjectEvent]:
    """Return Events on pods that are deleted because of their node's deadline."""
    end = f" at {format_time(claim.deadline)}" if claim.deadline else ""
    told = []
    for pod in pods:
        match answers.get(pod.pod):
            case Evicted(uid, before=False):
                why = f"deleted: the termination grace period of Node {pod.node} ends{end}"
                told.append(ObjectEvent("Pod", pod.pod, "Disrupted", why, uid=uid))
            case _:
                pass
    return told


_INTERRUPTIONS: Mapping[str, str] = {
    Fate.SPOT: "SpotInterrupted",
    Fate.REBALANCE: "SpotRebalanceRecommendation",
    Fate.RESERVATION: "CapacityReservationInstanceInterrupted",
    Fate.EXPIRING: "CapacityReservationInstanceInterrupted",
    Fate.STOPPED: "InstanceStopping",
    Fate.TERMINATED: "InstanceTerminating",
    Fate.IMPAIRED: "InstanceUnhealthy",
    Fate.SCHEDULED: "InstanceUnhealthy",
}
"""Karpenter's Event reasons for interruptions, by the cause of the termination."""


def of_interruption(claim: NodeClaim, node: str) -> list[ObjectEvent]:
    """Return Events on NodeClaim and Node with what EC2 does to their instance, none if the cause is another one."""
    reason = _INTERRUPTIONS.get(claim.cause)
    if reason is None:
        return []
    why = claim.cause_of(Phase.TERMINATING) or claim.cause
    objects = [("NodeClaim", claim.name), *([("Node", node)] if node else [])]
    is_certain = claim.cause != Fate.REBALANCE
    return [ObjectEvent(*about, reason, why, warning=is_certain) for about in objects]
