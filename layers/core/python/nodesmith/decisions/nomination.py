"""Nomination: which pods kube-scheduler is told to put where, and which of its own nominations stand.

kube-scheduler knows no plan. Of a claim's pods it hears by `status.nominatedNodeName`: it tries that node first, and
holds the pod's room there against pods of equal or lower priority. Whenever an attempt to schedule a pod fails, be it
because its node is not Ready yet, kube-scheduler takes the nomination back; so it is made again at every look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.scheduling.nodes.existing import nominations
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot


def to_nominate(
    claims: Iterable[NodeClaim], pods: Iterable[Pod], now: datetime
) -> Mapping[str, tuple[str, ...]]:
    """Return, by claim, the pods (namespace/name) that it was bought for and that wait without a nomination."""
    bought = nominations(claims, now)
    found: dict[str, list[str]] = {}
    for pod in pods:
        if pod.key in bought and not (pod.node or pod.nominated_node or pod.deleting):
            found.setdefault(bought[pod.key], []).append(pod.key)
    return {claim: tuple(sorted(keys)) for claim, keys in found.items()}


def to_clear(claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> Mapping[str, tuple[str, ...]]:
    """Return, by claim, the pods (namespace/name) that we nominated for its Node and that no longer wait for it.

    kube-scheduler would go on holding their room against others. And a pod that it refused for such room, when who was
    nominated there was then bound elsewhere, it does not try again for five minutes; where a nomination is cleared, it
    tries all at once that are of no higher priority (kubernetes/kubernetes#134859).
    """
    bought = nominations(claims, now)
    found: dict[str, list[str]] = {}
    for pod, claim in _ours(claims, snapshot):
        if bought.get(pod.key) != claim.name and not pod.deleting:
            found.setdefault(claim.name, []).append(pod.key)
    return {claim: tuple(sorted(keys)) for claim, keys in found.items()}


def preempting_only(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Snapshot:
    """Return the snapshot with those nominations only that kube-scheduler made, for pods that are to run there.

    Left out are nominations for nodes that are gone, and those that `to_nominate` asked for: their pods wait for their
    claim, or for a new one, as if nobody had nominated them. A pod for which others are leaving its node preempts them,
    whoever had nominated it first.
    """
    nodes, ours = {node.name for node in snapshot.nodes}, {pod.key for pod, _ in _ours(claims, snapshot)}

    def stands(pod: Pod) -> bool:
        return pod.nominated_node in nodes and pod.key not in ours

    pods = tuple(
        replace(pod, nominated_node="") if pod.nominated_node and not stands(pod) else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)


def _ours(claims: Iterable[NodeClaim], snapshot: Snapshot) -> Iterator[tuple[Pod, NodeClaim]]:
    """Yield the pods that are nominated by us, each with the claim whose Node it is nominated for."""
    bought = {(claim.node_name, key): claim for claim in claims if claim.node_name for key in claim.nominated}
    vacating = {pod.node for pod in snapshot.pods if pod.deleting and pod.node}
    for pod in snapshot.pods:
        if pod.nominated_node and pod.nominated_node not in vacating:
            claim = bought.get((pod.nominated_node, pod.key))
            if claim is not None and pod.created_at <= claim.created_at:
                yield pod, claim
