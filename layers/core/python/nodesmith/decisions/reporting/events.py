"""Events on objects about moves and nodes that stay, terminations, interruptions, evictions, and pods without a node.

Reasons are Karpenter's, messages nodesmith's. A message stays the same while nothing changes, so that the Event is not
repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from nodesmith.decisions.disruption.proposals import BUDGET, NOT_YET, UNREAD, Blocker, Proposals
from nodesmith.decisions.scheduling.existing import nominations
from nodesmith.decisions.termination.evictions import protected_for
from nodesmith.decisions.termination.waiting import (
    AWAITING_NODE,
    AWAITING_REPLACEMENT,
    DELETION_DELAYED,
    VOLUMES,
)
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.disruption import BALANCED
from nodesmith.model.karpenter.nodeclaimobjects import DRAINING
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NODES, NodePool
from nodesmith.model.kubernetes.evictions import Evicted, Eviction, EvictionRefused, PodOnNode
from nodesmith.model.kubernetes.podannotations import SCALE_UP_DELAY, scale_up_delay
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Move, Reason

LATELY = timedelta(minutes=10)
"""How long after the end of a protection an Event is sent."""
_QUOTED = 40
"""The most characters of a value in a message."""
_CONSOLIDATION_ONLY = frozenset({"ConsolidateAfter", "Labels", "Policy", "Price", "Static"})
"""Rules that keep a node from consolidation only."""
_TEMPORARY = frozenset({"Ending", "Moving", "NoNode", "Nominated", "NotInitialized"})
"""Rules that apply only for a moment: they are reported after all others."""
_UNTOLD = frozenset({NOT_YET, UNREAD, "Resting"})
"""Rules without an Event: a condition shows them, they pass within seconds, or an Event reported their beginning."""


def of_proposal(move: Move, sources: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Return Events that nodes may be consolidated, with the saving."""
    if move.reason is Reason.DRIFTED:
        return []
    return list(_both(sources, "ConsolidationCandidate", f"proposed: {move.message}"))


def of_approval(move: Move, sources: Iterable[NodeClaim], pools: Mapping[str, NodePool]) -> list[ObjectEvent]:
    """Return Events that a consolidation passed its validation, for nodes of NodePools with the policy Balanced."""
    if move.reason is Reason.DRIFTED:
        return []
    balanced = {name for name, pool in pools.items() if pool.disruption.consolidation_policy == BALANCED}
    weighed = (claim for claim in sources if claim.nodepool in balanced)
    return list(_both(weighed, "ConsolidationApproved", f"validated: {move.message}"))


def of_launches(move: Move) -> list[ObjectEvent]:
    """Return Events that a move's replacements are being launched."""
    message = f"launched to replace {', '.join(move.sources)}: {move.reason}"
    return [ObjectEvent("NodeClaim", name, "DisruptionLaunching", message) for name in move.replacements]


def of_replacements(move: Move, names: Iterable[str]) -> list[ObjectEvent]:
    """Return Events about the replacements that a move waits for."""
    message = f"waiting for this to be ready before disrupting {', '.join(move.sources)}"
    return [ObjectEvent("NodeClaim", name, "DisruptionWaitingReadiness", message) for name in names]


def of_ends(move: Move, claims: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Return Events that nodes are disrupted now."""
    return list(_both(claims, "DisruptionTerminating", f"disrupted: {move.reason}: {move.message}"))


def of_abandoning(move: Move, sources: Iterable[NodeClaim]) -> list[ObjectEvent]:
    """Return Events with the reason why the sources of an abandoned move stay."""
    reason = "DisruptionBlocked" if move.reason is Reason.DRIFTED else "ConsolidationRejected"
    return list(_both(sources, reason, f"it stays: {move.message}"))


def of_staying(proposals: Proposals, claims: Sequence[NodeClaim]) -> list[ObjectEvent]:
    """Return Events with the reason why nodes stay, those that stay only for a moment last."""
    lasting = {name: blocker for name, blocker in proposals.blocked.items() if blocker.rule not in _TEMPORARY}
    passing = {name: blocker for name, blocker in proposals.blocked.items() if blocker.rule in _TEMPORARY}
    needed = [
        event
        for claim in claims
        if claim.name in proposals.needed
        for event in _both([claim], "Unconsolidatable", proposals.needed[claim.name])
    ]
    return [*_of_blocked(lasting, claims), *needed, *_of_blocked(passing, claims)]


def _of_blocked(blocked: Mapping[str, Blocker], claims: Iterable[NodeClaim]) -> list[ObjectEvent]:
    events: list[ObjectEvent] = []
    for claim in claims:
        blocker = blocked.get(claim.name)
        if blocker is None or blocker.rule in _UNTOLD:
            continue
        if blocker.rule == BUDGET:
            events.append(ObjectEvent("NodePool", claim.nodepool, "DisruptionBlocked", blocker.message))
        reason = "Unconsolidatable" if blocker.rule in _CONSOLIDATION_ONLY else "DisruptionBlocked"
        events += _both([claim], reason, f"{blocker.message} ({blocker.object})")
    return events


def _both(claims: Iterable[NodeClaim], reason: str, message: str) -> Iterator[ObjectEvent]:
    for claim in claims:
        yield ObjectEvent("NodeClaim", claim.name, reason, message)
        if claim.node_name:
            yield ObjectEvent("Node", claim.node_name, reason, message)


_IN_TIME = frozenset({AWAITING_REPLACEMENT, AWAITING_NODE, DELETION_DELAYED, VOLUMES})
"""Reasons for waiting that usually pass without intervention."""


def of_deadline(claim: NodeClaim, node: str) -> list[ObjectEvent]:
    """Return Events on NodeClaim and Node with the deadline of the drain, none if there is no deadline."""
    if claim.deadline is None:
        return []
    message = (
        f"remaining pods are deleted in time for their grace periods to end by {format_time(claim.deadline)}"
    )
    objects = [("NodeClaim", claim.name), *([("Node", node)] if node else [])]
    return [ObjectEvent(*about, "TerminationGracePeriodExpiring", message, warning=True) for about in objects]


def of_waiting(claim: NodeClaim) -> list[ObjectEvent]:
    """Return Events with what a claim waits for: on the Node as Karpenter does, on the NodeClaim if it is unusual."""
    events: list[ObjectEvent] = []
    if not claim.reason:
        return events
    is_stuck = claim.reason not in _IN_TIME
    if claim.reason != DRAINING:
        events.append(ObjectEvent("NodeClaim", claim.name, claim.reason, claim.message, warning=is_stuck))
    if claim.node_name and claim.reason in {VOLUMES, DELETION_DELAYED, AWAITING_NODE}:
        events.append(ObjectEvent("Node", claim.node_name, claim.reason, claim.message))
    elif claim.node_name and claim.phase is Phase.TERMINATING and is_stuck:
        events.append(_failed_draining(claim.node_name, claim.message))
    return events


def _failed_draining(node: str, message: str) -> ObjectEvent:
    return ObjectEvent("Node", node, "FailedDraining", message, warning=True)


def of_evictions(
    claim: NodeClaim, pods: Iterable[PodOnNode], answers: Mapping[str, Eviction]
) -> list[ObjectEvent]:
    """Return Events on evicted pods with the cause, and on each Node with the first refused eviction."""
    events: list[ObjectEvent] = []
    refused: set[str] = set()
    for pod in pods:
        match answers.get(pod.pod):
            case Evicted(uid, before=False):
                text = f"evicted: Node {pod.node} is being terminated ({claim.cause})"
                events.append(ObjectEvent("Pod", pod.pod, "Evicted", text, uid=uid))
            case EvictionRefused(_, message) if pod.node not in refused:
                refused.add(pod.node)
                events.append(_failed_draining(pod.node, f"pod {pod.pod} stays for now: {message}"))
    return events


def of_deletions(
    claim: NodeClaim, pods: Iterable[PodOnNode], answers: Mapping[str, Eviction]
) -> list[ObjectEvent]:
    """Return Events on pods that are deleted because of their node's deadline."""
    end = f" at {format_time(claim.deadline)}" if claim.deadline else ""
    events = []
    for pod in pods:
        match answers.get(pod.pod):
            case Evicted(uid, before=False):
                message = f"deleted: the termination grace period of Node {pod.node} ends{end}"
                events.append(ObjectEvent("Pod", pod.pod, "Disrupted", message, uid=uid))
            case _:
                pass
    return events


_INTERRUPTIONS: Mapping[str, str] = {
    InterruptionCause.SPOT: "SpotInterrupted",
    InterruptionCause.REBALANCE: "SpotRebalanceRecommendation",
    InterruptionCause.RESERVATION: "CapacityReservationInstanceInterrupted",
    InterruptionCause.EXPIRING: "CapacityReservationInstanceInterrupted",
    InterruptionCause.STOPPED: "InstanceStopping",
    InterruptionCause.TERMINATED: "InstanceTerminating",
    InterruptionCause.IMPAIRED: "InstanceUnhealthy",
    InterruptionCause.SCHEDULED: "InstanceUnhealthy",
}
"""Karpenter's Event reasons for interruptions, by the cause of the termination."""


def of_interruption(claim: NodeClaim, node: str) -> list[ObjectEvent]:
    """Return Events on NodeClaim and Node with what EC2 does to their instance, none if the cause is another one."""
    reason = _INTERRUPTIONS.get(claim.cause)
    if reason is None:
        return []
    message = claim.cause_of(Phase.TERMINATING) or claim.cause
    objects = [("NodeClaim", claim.name), *([("Node", node)] if node else [])]
    is_certain = claim.cause != InterruptionCause.REBALANCE
    return [ObjectEvent(*about, reason, message, warning=is_certain) for about in objects]


def pod_events(claims: Iterable[NodeClaim], pods: Iterable[Pod], now: datetime) -> Iterator[ObjectEvent]:
    """Yield Events on pods without a node that a claim was bought for, and on pods with annotations about nodes."""
    claims = list(claims)
    nominated = nominations(claims, now)
    node_names = {claim.node_name for claim in claims if claim.node_name}
    for pod in pods:
        if pod.deleting:
            continue
        if not pod.node and pod.key in nominated:
            yield ObjectEvent(
                "Pod", pod.key, "Nominated", f"Pod should schedule on: nodeclaim/{nominated[pod.key]}"
            )
        delay = pod.shape.annotations.get(SCALE_UP_DELAY)
        if not pod.node and delay is not None and scale_up_delay(delay) is None:
            message = f"{SCALE_UP_DELAY} is {delay[:_QUOTED]!r} and delays nothing: it must be a duration such as 5m"
            yield ObjectEvent("Pod", pod.key, "InvalidScaleUpDelayAnnotation", message, warning=True)
        value = pod.shape.annotations.get(DO_NOT_DISRUPT)
        if value is not None and value != "true" and pod.node in node_names:
            yield from _of_protection(pod, value, now)


_UNLIMITED = 2**31 - 1
"""Stands for the maximum of a NodePool without a limit of nodes: tools that read the Event expect a number."""


def scale_up_events(
    claims: Sequence[NodeClaim], pods: Iterable[Pod], pools: Mapping[str, NodePool], now: datetime
) -> Iterator[ObjectEvent]:
    """Yield Cluster Autoscaler's Event on each pod that a claim was bought for, with NodePools as node groups."""
    nominated, by_name = nominations(claims, now), {claim.name: claim for claim in claims}
    for pod in pods:
        claim = by_name[nominated[pod.key]] if pod.key in nominated else None
        if claim is not None and claim.nodepool and not (pod.node or pod.deleting):
            mine = [c for c in claims if c.nodepool == claim.nodepool and not (c.is_ending or c.is_warm)]
            before = sum(other.bought_at < claim.bought_at for other in mine)
            after = sum(other.bought_at <= claim.bought_at for other in mine)
            pool = pools.get(claim.nodepool)
            maximum = pool.limits.of(NODES) if pool is not None and NODES in pool.limits else _UNLIMITED
            message = f"pod triggered scale-up: [{{{claim.nodepool} {before}->{after} (max: {maximum})}}]"
            yield ObjectEvent("Pod", pod.key, "TriggeredScaleUp", message)


def not_scaled_up(pod: str, message: str) -> ObjectEvent:
    """Return Cluster Autoscaler's Event on a pod (namespace/name) that no node is bought for."""
    return ObjectEvent("Pod", pod, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {message}")


def _of_protection(pod: Pod, value: str, now: datetime) -> Iterator[ObjectEvent]:
    span = protected_for(value)
    if span is None:
        message = (
            f"{DO_NOT_DISRUPT} is {value!r} and protects nothing: it must be true, or a duration such as 30m"
        )
        yield ObjectEvent("Pod", pod.key, "InvalidDoNotDisruptAnnotation", message, warning=True)
        return
    if pod.started_at is None:
        return
    until = pod.started_at + span
    if now < until:
        yield ObjectEvent("Pod", pod.key, "DoNotDisruptUntil", f"not disrupted before {format_time(until)}")
    elif now - until < LATELY:
        message = (
            f"no longer protected from disruption since {format_time(until)}: {DO_NOT_DISRUPT} was {value}"
        )
        yield ObjectEvent("Pod", pod.key, "DoNotDisruptGracePeriodElapsed", message)
