"""What is told of pods that leave a node, on the objects where people look: Karpenter's reasons, our words.

The words do not change while nothing does, so that the same Event is not told again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodesmith.decisions.termination.waiting import AWAITING_NODE, AWAITING_REPLACEMENT, VOLUMES
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaimconditions import DRAINING
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.kubernetes.evictions import Evicted, Eviction, EvictionRefused, PodOnNode

_IN_TIME = frozenset({AWAITING_REPLACEMENT, AWAITING_NODE, VOLUMES})
"""What passes by itself, unless it lasts."""


def of_deadline(claim: NodeClaim, node: str) -> list[ObjectEvent]:
    """Tell NodeClaim and Node until when pods may stay at most; nothing where there is no such time."""
    if claim.deadline is None:
        return []
    why = f"pods that are still here are deleted so that each has its grace by {format_time(claim.deadline)}"
    objects = [("NodeClaim", claim.name), *([("Node", node)] if node else [])]
    return [ObjectEvent(*about, "TerminationGracePeriodExpiring", why, warning=True) for about in objects]


def of_waiting(claim: NodeClaim) -> list[ObjectEvent]:
    """Tell the Node of what it waits for, as Karpenter does, and the NodeClaim what is unusual."""
    told: list[ObjectEvent] = []
    if not claim.reason:
        return told
    is_stuck = claim.reason not in _IN_TIME
    if claim.reason != DRAINING:
        told.append(ObjectEvent("NodeClaim", claim.name, claim.reason, claim.message, warning=is_stuck))
    if claim.node_name and claim.reason in {VOLUMES, AWAITING_NODE}:
        told.append(ObjectEvent("Node", claim.node_name, claim.reason, claim.message))
    elif claim.node_name and claim.phase is Phase.TERMINATING and is_stuck:
        told.append(_failed_draining(claim.node_name, claim.message))
    return told


def _failed_draining(node: str, why: str) -> ObjectEvent:
    return ObjectEvent("Node", node, "FailedDraining", why, warning=True)


def of_evictions(
    claim: NodeClaim, pods: Iterable[PodOnNode], answers: Mapping[str, Eviction]
) -> list[ObjectEvent]:
    """Tell each evicted pod why, and each Node of the first refusal of its pods."""
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
    """Tell each pod whose own grace is cut short, or that was protected, that its node's time is up."""
    end = f" at {format_time(claim.deadline)}" if claim.deadline else ""
    told = []
    for pod in pods:
        match answers.get(pod.pod):
            case Evicted(uid, before=False):
                why = f"deleted: the grace of Node {pod.node} ends{end}"
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
"""What Karpenter says of an instance, by the cause of the end that follows from it."""


def of_interruption(claim: NodeClaim, node: str) -> list[ObjectEvent]:
    """Tell NodeClaim and Node what EC2 does to their instance; nothing where the end has another cause."""
    reason = _INTERRUPTIONS.get(claim.cause)
    if reason is None:
        return []
    why = claim.cause_of(Phase.TERMINATING) or claim.cause
    objects = [("NodeClaim", claim.name), *([("Node", node)] if node else [])]
    is_certain = claim.cause != Fate.REBALANCE
    return [ObjectEvent(*about, reason, why, warning=is_certain) for about in objects]
