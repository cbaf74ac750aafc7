"""Nomination: which pods are nominated for which Nodes, which nominations by kube-scheduler count, and Events on pods.

kube-scheduler does not know nodesmith's plan. A pod's `status.nominatedNodeName` makes it try that node first, and
reserve the pod's room there against pods of equal or lower priority. Whenever an attempt to schedule the pod fails, for
instance because its node is not Ready yet, kube-scheduler clears the nomination; so every look sets it again.

Reasons of Events are Karpenter's. A message stays the same while nothing changes, so that the Event is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.scheduling.existing import nominations
from nodesmith.decisions.termination.evictions import protected_for
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NODES, NodePool
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.kubernetes.podannotations import SCALE_UP_DELAY, scale_up_delay
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot

LATELY = timedelta(minutes=10)
"""How long after the end of a protection an Event is sent."""
_QUOTED = 40
"""The most characters of a value in a message."""


def to_nominate(
    claims: Iterable[NodeClaim], pods: Iterable[Pod], now: datetime
) -> Mapping[str, tuple[str, ...]]:
    """Return, by claim name, the pods (namespace/name) that it was bought for and that wait without a nomination."""
    bought = nominations(claims, now)
    found: dict[str, list[str]] = {}
    for pod in pods:
        if pod.key in bought and not (pod.node or pod.nominated_node or pod.deleting):
            found.setdefault(bought[pod.key], []).append(pod.key)
    return {claim: tuple(sorted(keys)) for claim, keys in found.items()}


def to_clear(claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> Mapping[str, tuple[str, ...]]:
    """Return, by claim name, the pods (namespace/name) that nodesmith nominated for its Node and that no longer wait.

    kube-scheduler would keep reserving their room. Furthermore, if it refused a pod because of such room and the
    nominated pod was then bound elsewhere, it does not retry the refused pod for five minutes. When a nomination is
    cleared, it retries all pods of equal or lower priority at once (kubernetes/kubernetes#134859).
    """
    bought = nominations(claims, now)
    found: dict[str, list[str]] = {}
    for pod, claim in _ours(claims, snapshot):
        if bought.get(pod.key) != claim.name and not pod.deleting:
            found.setdefault(claim.name, []).append(pod.key)
    return {claim: tuple(sorted(keys)) for claim, keys in found.items()}


def preempting_only(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Snapshot:
    """Return the snapshot with only the nominations that kube-scheduler made by preemption.

    Nominations for nodes that are gone, and those from `to_nominate`, are removed: their pods wait for their claim, or
    for a new one, as if they had no nomination. If pods on the nominated node are terminating, the nomination counts as
    a preemption, even if nodesmith made it first.
    """
    if not any(pod.nominated_node for pod in snapshot.pods):
        return snapshot
    nodes, ours = {node.name for node in snapshot.nodes}, {pod.key for pod, _ in _ours(claims, snapshot)}

    def stands(pod: Pod) -> bool:
        return pod.nominated_node in nodes and pod.key not in ours

    pods = tuple(
        replace(pod, nominated_node="") if pod.nominated_node and not stands(pod) else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)


def _ours(claims: Iterable[NodeClaim], snapshot: Snapshot) -> Iterator[tuple[Pod, NodeClaim]]:
    """Yield the pods that nodesmith nominated, each with the claim whose Node it is nominated for."""
    named = {pod.nominated_node for pod in snapshot.pods if pod.nominated_node}
    bought = {
        (claim.node_name, key): claim
        for claim in claims
        if claim.node_name in named
        for key in claim.nominated
    }
    vacating = {pod.node for pod in snapshot.pods if pod.deleting and pod.node}
    for pod in snapshot.pods:
        if pod.nominated_node and pod.nominated_node not in vacating:
            claim = bought.get((pod.nominated_node, pod.key))
            if claim is not None and pod.created_at <= claim.created_at:
                yield pod, claim


def pod_events(claims: Iterable[NodeClaim], pods: Iterable[Pod], now: datetime) -> Iterator[ObjectEvent]:
    """Yield Events on pods without a node that a claim was bought for, and on pods with annotations about nodes."""
    claims = list(claims)
    bought = nominations(claims, now)
    ours = {claim.node_name for claim in claims if claim.node_name}
    for pod in pods:
        if pod.deleting:
            continue
        if not pod.node and pod.key in bought:
            yield ObjectEvent(
                "Pod", pod.key, "Nominated", f"Pod should schedule on: nodeclaim/{bought[pod.key]}"
            )
        delay = pod.shape.annotations.get(SCALE_UP_DELAY)
        if not pod.node and delay is not None and scale_up_delay(delay) is None:
            why = f"{SCALE_UP_DELAY} is {delay[:_QUOTED]!r} and delays nothing: it must be a duration such as 5m"
            yield ObjectEvent("Pod", pod.key, "InvalidScaleUpDelayAnnotation", why, warning=True)
        value = pod.shape.annotations.get(DO_NOT_DISRUPT)
        if value is not None and value != "true" and pod.node in ours:
            yield from _of_protection(pod, value, now)


_UNLIMITED = 2**31 - 1
"""Stands for the maximum of a NodePool without a limit of nodes: tools that read the Event expect a number."""


def scale_up_events(
    claims: Sequence[NodeClaim], pods: Iterable[Pod], pools: Mapping[str, NodePool], now: datetime
) -> Iterator[ObjectEvent]:
    """Yield Cluster Autoscaler's Event on each pod that a claim was bought for, with NodePools as node groups."""
    bought, by_name = nominations(claims, now), {claim.name: claim for claim in claims}
    for pod in pods:
        claim = by_name[bought[pod.key]] if pod.key in bought else None
        if claim is not None and claim.nodepool and not (pod.node or pod.deleting):
            mine = [other for other in claims if other.nodepool == claim.nodepool and not other.is_ending]
            before = sum(other.created_at < claim.created_at for other in mine)
            after = sum(other.created_at <= claim.created_at for other in mine)
            pool = pools.get(claim.nodepool)
            most = pool.limits.of(NODES) if pool is not None and NODES in pool.limits else _UNLIMITED
            message = f"pod triggered scale-up: [{{{claim.nodepool} {before}->{after} (max: {most})}}]"
            yield ObjectEvent("Pod", pod.key, "TriggeredScaleUp", message)


def not_scaled_up(pod: str, why: str) -> ObjectEvent:
    """Return Cluster Autoscaler's Event on a pod (namespace/name) that no node is bought for."""
    return ObjectEvent("Pod", pod, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {why}")


def _of_protection(pod: Pod, value: str, now: datetime) -> Iterator[ObjectEvent]:
    span = protected_for(value)
    if span is None:
        why = (
            f"{DO_NOT_DISRUPT} is {value!r} and protects nothing: it must be true, or a duration such as 30m"
        )
        yield ObjectEvent("Pod", pod.key, "InvalidDoNotDisruptAnnotation", why, warning=True)
        return
    if pod.started_at is None:
        return
    until = pod.started_at + span
    if now < until:
        yield ObjectEvent("Pod", pod.key, "DoNotDisruptUntil", f"not disrupted before {format_time(until)}")
    elif now - until < LATELY:
        why = f"no longer protected from disruption since {format_time(until)}: {DO_NOT_DISRUPT} was {value}"
        yield ObjectEvent("Pod", pod.key, "DoNotDisruptGracePeriodElapsed", why)
