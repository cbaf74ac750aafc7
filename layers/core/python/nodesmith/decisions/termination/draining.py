"""Draining: which pods of a node must go, in which order, and which of them now.

Rules are Karpenter's: four tiers, one after the other; pods that tolerate the taint of a disrupted node stay, as do
static ones; one that is stuck terminating is waited for no longer. Past the deadline nothing protects a pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from nodesmith.decisions.termination.protection import Allowances, refuses_disruption
from nodesmith.model.apimachinery.taints import DISRUPTED, first_untolerated
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.shapes import Shape
from nodesmith.model.snapshot import Snapshot

STUCK_AFTER = timedelta(minutes=1)
"""How long past the end of its grace a terminating pod is waited for."""
OVERSHOOT = timedelta(seconds=5)
"""So much later than the deadline may the grace of a pod end that has been told to go: less would not help it."""
PRESSING = timedelta(seconds=10)
"""So much before it is deleted, or longer, a pod is asked to leave, within its budgets, whatever it was to wait for."""
_LEAST_GRACE_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Drain:
    """What a look at a node's pods found. `left` must still go, in order; `evict` and `delete` are some of them.

    `delete` holds the seconds of grace that are left until the deadline.
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
    """Look at the pods of one node that is to be emptied; where it is `patient`, only those whose time runs out go.

    `usual` is how much longer than the grace of pods such drains have lately taken: so much sooner time runs out. A pod
    is deleted at the last moment that gives it its grace until the deadline, or the `head_start` sooner. Those whose
    eviction was `denied` of late are tried again, but take nothing of what their budgets allow others.
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
    """Return whether a pod should long have ended."""
    return pod.deletion_at is not None and now - pod.deletion_at > STUCK_AFTER


def tier(pod: Pod) -> int:
    """Return when it is a pod's turn: daemons after the others of their kind, those critical to the system last."""
    return 2 * pod.shape.critical + pod.shape.is_daemon


def last_moment(pod: Pod, deadline: datetime, head_start: timedelta = timedelta(0)) -> datetime:
    """Return when a pod is deleted so that it has its grace until the deadline, and the `head_start` beside it."""
    return deadline - timedelta(seconds=pod.shape.grace_seconds) - head_start


def pressing_from(
    pod: Pod, deadline: datetime, usual: timedelta, head_start: timedelta = timedelta(0)
) -> datetime:
    """Return when a pod that was to wait is asked to leave, within its budgets, before it is deleted."""
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
    """Return a pod's own grace or what is left of it, a part of a second as a whole one."""
    seconds = 0.0 if deadline is None else (deadline - now).total_seconds()
    return max(_LEAST_GRACE_SECONDS, min(pod.shape.grace_seconds, ceil(seconds)))


def attached(node: str, snapshot: Snapshot) -> list[str]:
    """Name the volumes that must be detached from a drained node, but for those of pods that stay on it."""
    held = [attachment for attachment in snapshot.attachments if attachment.node == node]
    if not held:
        return []
    staying = {pod.key for pod in snapshot.pods if pod.node == node and not must_go(pod.shape)}
    return sorted(attachment.volume for attachment in held if not staying.intersection(attachment.pods))
