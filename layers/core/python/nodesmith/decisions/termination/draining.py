"""Draining: which pods of a node must go, in which order, and which of them now.

The rules are Karpenter's. There are four tiers, one after the other. Static pods, and pods that tolerate the taint of a
disrupted node, stay. The drain does not wait for a pod that is stuck terminating. After the deadline nothing protects a
pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from nodesmith.decisions.termination.protection import Allowances, refuses_disruption
from nodesmith.model.apimachinery.taints import DISRUPTED, first_untolerated
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.snapshot import Snapshot

STUCK_AFTER = timedelta(minutes=1)
"""How long after the end of its grace period a terminating pod is waited for."""
OVERSHOOT = timedelta(seconds=5)
"""How long after the deadline the grace period of a terminating pod may end before its deletion is repeated."""
PRESSING = timedelta(seconds=10)
"""The least time before its deletion at which a pod is evicted, within its budgets, even if it was to wait."""
_LEAST_GRACE_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Drain:
    """The pods of a node that must go. `left` are all of them, in order; `evict` and `delete` are some of `left`.

    Each pod in `delete` comes with the seconds of grace that remain until the deadline.
    """

    left: tuple[Pod, ...] = ()
    evict: tuple[Pod, ...] = ()
    delete: tuple[tuple[Pod, int], ...] = ()


def drain(
    pods: Iterable[Pod],
    allowances: Allowances,
    deadline: datetime | None,
    now: datetime,
    *,
    patient: bool = False,
    denied: Collection[str] = (),
    usual: timedelta = timedelta(0),
    head_start: timedelta = timedelta(0),
) -> Drain:
    """Return which pods of a node that is being drained must go, and which now.

    If `patient`, only pods whose time runs out are evicted. `usual` is how much longer than their pods' grace such
    drains have lately taken; evictions begin that much sooner. A pod is deleted at the last moment that leaves it its
    grace until the deadline, or `head_start` sooner. Pods whose eviction was `denied` lately are tried again, but do
    not use up what their budgets allow.
    """
    left = sorted(
        (pod for pod in pods if must_go(pod.shape) and not is_stuck(pod, now)),
        key=lambda pod: (tier(pod), pod.key),
    )
    if not left:
        return Drain()
    overdue = [] if deadline is None else [pod for pod in left if _is_overdue(pod, deadline, now, head_start)]
    forced = {pod.key for pod in overdue}
    current = [pod for pod in left if tier(pod) == tier(left[0]) and pod.key not in forced]
    evict = [
        pod
        for pod in current
        if not (patient and not _is_pressing(pod, deadline, now, usual, head_start))
        and not pod.deleting
        and not refuses_disruption(pod, now)
        and (allowances.permits(pod) if pod.key in denied else allowances.take(pod))
    ]
    return Drain(
        tuple(left), tuple(evict), tuple((pod, _grace_seconds(pod, deadline, now)) for pod in overdue)
    )


def must_go(shape: Shape) -> bool:
    """Return whether pods of a shape leave a node that is drained."""
    return not shape.is_static and first_untolerated((DISRUPTED,), shape.tolerations) is not None


def is_stuck(pod: Pod, now: datetime) -> bool:
    """Return whether a pod should have ended more than `STUCK_AFTER` ago."""
    return pod.deletion_at is not None and now - pod.deletion_at > STUCK_AFTER


def tier(pod: Pod) -> int:
    """Return a pod's tier, from 0 to 3: system-critical pods after all others, and within each group daemons last."""
    return 2 * pod.shape.critical + pod.shape.is_daemon


def last_moment(pod: Pod, deadline: datetime, head_start: timedelta = timedelta(0)) -> datetime:
    """Return when a pod must be deleted so that its grace, and the `head_start` in addition, end by the deadline."""
    return deadline - timedelta(seconds=pod.shape.grace_seconds) - head_start


def pressing_from(
    pod: Pod, deadline: datetime, usual: timedelta, head_start: timedelta = timedelta(0)
) -> datetime:
    """Return when a pod that was to wait is evicted, within its budgets, before it would be deleted."""
    return last_moment(pod, deadline, head_start) - max(PRESSING, usual)


def _is_overdue(pod: Pod, deadline: datetime, now: datetime, head_start: timedelta) -> bool:
    """Return whether a pod would outlive the deadline unless it is deleted now."""
    if pod.deleting:
        return pod.deletion_at is not None and pod.deletion_at > deadline + OVERSHOOT
    return now >= last_moment(pod, deadline, head_start)


def _is_pressing(
    pod: Pod, deadline: datetime | None, now: datetime, usual: timedelta, head_start: timedelta
) -> bool:
    return deadline is not None and now >= pressing_from(pod, deadline, usual, head_start)


def _grace_seconds(pod: Pod, deadline: datetime | None, now: datetime) -> int:
    """Return the seconds of grace for a deletion: the pod's own, or the time left until the deadline, rounded up."""
    seconds = 0.0 if deadline is None else (deadline - now).total_seconds()
    return max(_LEAST_GRACE_SECONDS, min(pod.shape.grace_seconds, ceil(seconds)))


def attached(node: str, snapshot: Snapshot) -> list[str]:
    """Return the names of the volumes that must be detached from a drained node, without those of pods that stay."""
    held = [attachment for attachment in snapshot.attachments if attachment.node == node]
    if not held:
        return []
    staying = {pod.key for pod in snapshot.pods if pod.node == node and not must_go(pod.shape)}
    return sorted(attachment.volume for attachment in held if not staying.intersection(attachment.pods))
