"""Select the pods to buy nodes for, and give one reason for every other pod without a node.

A pod that kube-scheduler has nominated for a node (status.nominatedNodeName) is left alone: it will run there once the
pods that it preempts have ended, or once its volumes are bound. The scheduler writes the nomination in the same patch
as the verdict Unschedulable, so no snapshot shows one without the other. When the scheduler withdraws the nomination,
because a pod of higher priority came or nothing can be preempted any more, the pod is provisioned for again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from nodesmith.model.apimachinery.resources import format_amount
from nodesmith.model.kubernetes.pods import Pod, Shape


def provisionable(
    pods: Iterable[Pod], going: Collection[str] = (), is_kept: Callable[[Pod], bool] = lambda _: False
) -> tuple[list[Pod], list[tuple[Pod, str]]]:
    """Return the pods to provision for, and the ignored pods with their reasons.

    Pods on nodes in `going` (being deleted or disrupted) will need another node and are provided for at once, unless
    they cannot be evicted (`is_kept`) or have no controller that recreates them. DaemonSet pods, static pods and pods
    being deleted are in neither list.
    """
    wanted: list[Pod] = []
    ignored: list[tuple[Pod, str]] = []
    refusals: dict[Shape, str] = {}
    for pod in pods:
        if pod.deleting or pod.shape.is_daemon or pod.shape.is_static:
            continue
        if pod.node and (pod.node not in going or not pod.shape.owner or is_kept(pod)):
            continue
        reason = ("" if pod.node else _state_refusal(pod)) or pod.refusal
        if not reason:
            if pod.shape not in refusals:
                refusals[pod.shape] = shape_refusal(pod.shape)
            reason = refusals[pod.shape]
        if reason:
            ignored.append((pod, reason))
        else:
            wanted.append(pod)
    return wanted, ignored


def _state_refusal(pod: Pod) -> str:
    if pod.nominated_node:
        return (
            f"the scheduler has nominated it for {pod.nominated_node}: it waits for pods of lower priority to end"
            " there, or for its volumes"
        )
    if not pod.unschedulable:
        return "the scheduler has not called it unschedulable (yet, or it waits for a scheduling gate)"
    return ""


def shape_refusal(shape: Shape) -> str:
    """Return why no node can be bought for such pods whatever the NodePools offer; empty when one can."""
    if shape.refusal:
        return shape.refusal
    negative = next((name for name, amount in sorted(shape.requests.items()) if amount < 0), None)
    if negative:
        return f"its request of {format_amount(negative, shape.requests[negative])} {negative} is negative"
    return ""


def unserved(pods: Iterable[Pod], nominated: Mapping[str, str]) -> tuple[list[Pod], list[Pod]]:
    """Split pods into those that no claim has been bought for yet and those that wait for their claim."""
    pods = list(pods)
    return [p for p in pods if p.key not in nominated], [p for p in pods if p.key in nominated]
