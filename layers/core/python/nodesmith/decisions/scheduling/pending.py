"""The pods to buy nodes for, one reason for every other pod without a node, and the zones that pending pods may use.

Nothing is bought for a pod before the end of its `cluster-autoscaler.kubernetes.io/pod-scale-up-delay`. kube-scheduler
binds it meanwhile if a node has room, be it a new one.

A pod that kube-scheduler has nominated for a node (status.nominatedNodeName) is left alone: it will run there once the
pods that it preempts have ended, or once its volumes are bound. The scheduler writes the nomination in the same patch
as the verdict Unschedulable, so no snapshot shows one without the other. When the scheduler withdraws the nomination,
because a pod of higher priority came or nothing can be preempted any more, the pod is provisioned for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime

from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.quantities import format_amount
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.kubernetes.devices import UNKNOWN_DEVICES
from nodesmith.model.kubernetes.podannotations import SCALE_UP_DELAY, scale_up_delay
from nodesmith.model.kubernetes.pods import CONTRADICT, NOT_ALL_VOLUMES, Pod, Shape

_LAST = datetime.max.replace(tzinfo=UTC)
FLEXIBLE, NONE = "flexible", "none"
"""The values Karpenter reports for pods that allow several zones and for pods that allow none."""


def provisionable(
    pods: Iterable[Pod],
    going: Collection[str] = (),
    is_kept: Callable[[Pod], bool] = lambda _: False,
    cutoff: int | None = None,
) -> tuple[list[Pod], list[tuple[Pod, str]]]:
    """Return the pods to provision for, and the ignored pods with their reasons.

    Pods on nodes in `going` (being deleted or disrupted) will need another node and are provided for at once, unless
    they cannot be evicted (`is_kept`) or have no controller that recreates them. Pods whose priority is below `cutoff`
    are expendable: they only use room that is there. DaemonSet pods and static pods are in neither list, nor are pods
    being deleted, except those of StatefulSets: these come back only when they are gone, and their node can be ready.
    """
    wanted: list[Pod] = []
    ignored: list[tuple[Pod, str]] = []
    refusals: dict[Shape, str] = {}
    for pod in pods:
        if not pod.shape.moves or (pod.deleting and not (pod.node and pod.shape.comes_back)):
            continue
        if pod.node and (pod.node not in going or not pod.shape.owner or is_kept(pod)):
            continue
        reason = ("" if pod.node else _state_refusal(pod)) or _expendable(pod, cutoff) or pod.refusal
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


def _expendable(pod: Pod, cutoff: int | None) -> str:
    if not is_expendable(pod.shape, cutoff):
        return ""
    return f"its priority {pod.shape.priority} is below {cutoff}, the cluster's EXPENDABLE_PRIORITY_CUTOFF"


def is_expendable(shape: Shape, cutoff: int | None) -> bool:
    """Return whether pods of a shape neither cause purchases nor keep nodes.

    Without a cutoff, none are expendable. Planned pods that keep room for others never are.
    """
    return cutoff is not None and shape.priority < cutoff and not shape.is_room


def shape_refusal(shape: Shape) -> str:
    """Return why no node can be bought for such pods whatever the NodePools offer; empty when one can."""
    if shape.refusal:
        return shape.refusal
    if shape.claims:
        return UNKNOWN_DEVICES
    negative = next((name for name, amount in sorted(shape.requests.items()) if amount < 0), None)
    if negative:
        return f"its request of {format_amount(negative, shape.requests[negative])} {negative} is negative"
    return ""


def delayed(pods: Iterable[Pod], now: datetime) -> tuple[list[Pod], list[tuple[Pod, datetime]]]:
    """Split pods into those for which a node may be bought, and those for which none is bought yet, with until when.

    Pods that still have a node have waited before, so their delay is over.
    """
    grown: list[Pod] = []
    young: list[tuple[Pod, datetime]] = []
    for pod in pods:
        until = buys_from(pod)
        if pod.node or until is None or until <= now:
            grown.append(pod)
        else:
            young.append((pod, until))
    return grown, young


def buys_from(pod: Pod) -> datetime | None:
    """Return from when a node may be bought for a pod that has a SCALE_UP_DELAY, None for a pod without a delay.

    A delay that cannot be read is none.
    """
    text = pod.shape.annotations.get(SCALE_UP_DELAY)
    delay = scale_up_delay(text) if text is not None else None
    return pod.created_at + min(delay, _LAST - pod.created_at) if delay else None


def unserved(pods: Iterable[Pod], nominated: Mapping[str, str]) -> tuple[list[Pod], list[Pod]]:
    """Split pods into those that no claim has been bought for yet and those that wait for their claim."""
    pods = list(pods)
    return [p for p in pods if p.key not in nominated], [p for p in pods if p.key in nominated]


def waiting_by_zone(pods: Iterable[Pod]) -> tuple[Counter[str], int]:
    """Count the pods that wait for a node by their only possible zone; also return how many pods no node can serve.

    A zone is taken from node selectors, required node affinity and volumes; rules about other pods do not count. A pod
    that allows no zone at all is in both counts, since no node can serve it.
    """
    wanted, refused = provisionable(pods)
    # Whether the devices of readable claims can be had is known only in a decision.
    claiming = [pod for pod, why in refused if why == UNKNOWN_DEVICES and _is_readable(pod.shape)]
    wanted += claiming
    keys = {pod.key for pod in claiming}
    known: dict[Shape, str] = {}
    zones: Counter[str] = Counter()
    for pod in wanted:
        if pod.shape not in known:
            known[pod.shape] = _zone(pod.shape)
        zones[known[pod.shape]] += 1
    ignored = [
        why for pod, why in refused if pod.unschedulable and not pod.nominated_node and pod.key not in keys
    ]
    nowhere = sum(NOT_ALL_VOLUMES in why or (CONTRADICT in why and ZONE in why) for why in ignored)
    return zones + Counter({NONE: nowhere}), len(ignored)


def _is_readable(shape: Shape) -> bool:
    """Return whether pods claim devices, and all their claims can be simulated."""
    return bool(shape.claims) and not any(claim.problem for claim in shape.claims)


def _zone(shape: Shape) -> str:
    """Return the only zone of pods, `flexible` if there may be several, and `none` if their rules exclude all."""
    found: set[str] = set()
    for term in shape.terms:
        asked = term.get(ZONE, Requirement(ZONE, complement=True))
        if asked.complement:
            return FLEXIBLE
        found |= asked.values
    return found.pop() if len(found) == 1 else FLEXIBLE if found else NONE
