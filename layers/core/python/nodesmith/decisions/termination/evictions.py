"""Which pods of a node must be evicted, in which order, and which must not, by their annotations and by budgets.

The rules are Karpenter's. There are four tiers, one after the other. Static pods, and pods that tolerate the taint of a
disrupted node, stay. By Cluster Autoscaler's annotation `enable-ds-eviction`, pods of DaemonSets leave or stay whatever
they tolerate. The drain does not wait for a pod that is stuck terminating. After the deadline nothing protects a
pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED, DO_NOT_DISRUPT, first_untolerated
from nodesmith.model.apimachinery.times import LONGEST_SECONDS, go_duration
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.podannotations import DAEMON_EVICTION
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.snapshot import Snapshot

STUCK_AFTER = timedelta(minutes=1)
"""How long after the end of its grace period a terminating pod is waited for."""
OVERSHOOT = timedelta(seconds=5)
"""How long after the deadline the grace period of a terminating pod may end before its deletion is repeated."""
PRESSING = timedelta(seconds=10)
"""The least time before its deletion at which a pod is evicted, within its budgets, even if it was to wait."""
_LEAST_GRACE_SECONDS = 1
_NONE: Mapping[str, int] = FrozenMap()


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
    remaining = sorted(
        (pod for pod in pods if must_go(pod.shape) and not is_stuck(pod, now)),
        key=lambda pod: (tier(pod), pod.key),
    )
    if not remaining:
        return Drain()
    overdue = (
        [] if deadline is None else [pod for pod in remaining if _is_overdue(pod, deadline, now, head_start)]
    )
    forced = {pod.key for pod in overdue}
    current = [pod for pod in remaining if tier(pod) == tier(remaining[0]) and pod.key not in forced]
    evict = [
        pod
        for pod in current
        if not (patient and not _is_urgent(pod, deadline, now, usual, head_start))
        and not pod.deleting
        and not refuses_disruption(pod, now)
        and (allowances.is_evictable(pod) if pod.key in denied else allowances.take(pod))
    ]
    return Drain(
        tuple(remaining), tuple(evict), tuple((pod, _grace_seconds(pod, deadline, now)) for pod in overdue)
    )


def must_go(shape: Shape) -> bool:
    """Return whether pods of a shape leave a node that is drained.

    Pods of DaemonSets may say so themselves. Of all others, those leave that do not tolerate the taint.
    """
    if shape.is_static or shape.is_room:
        return False
    annotation = shape.annotations.get(DAEMON_EVICTION) if shape.is_daemon else None
    if annotation == "false":
        return False
    return annotation == "true" or not _tolerates(shape)


def is_successor(pod: Pod, begun: datetime) -> bool:
    """Return whether a DaemonSet has created a pod on a node after its termination had `begun`.

    A DaemonSet whose pods tolerate the taint replaces each evicted pod at once, on the same node. It is evicted once.
    """
    return pod.shape.is_daemon and _tolerates(pod.shape) and pod.created_at > begun


def _tolerates(shape: Shape) -> bool:
    return first_untolerated((DISRUPTED,), shape.tolerations) is None


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


def _is_urgent(
    pod: Pod, deadline: datetime | None, now: datetime, usual: timedelta, head_start: timedelta
) -> bool:
    return deadline is not None and now >= pressing_from(pod, deadline, usual, head_start)


def _grace_seconds(pod: Pod, deadline: datetime | None, now: datetime) -> int:
    """Return the seconds of grace for a deletion: the pod's own, or the time left until the deadline, rounded up."""
    seconds = 0.0 if deadline is None else (deadline - now).total_seconds()
    return max(_LEAST_GRACE_SECONDS, min(pod.shape.grace_seconds, ceil(seconds)))


def attached(node: str, snapshot: Snapshot) -> list[str]:
    """Return the names of the volumes that must be detached from a drained node, without those of pods that stay."""
    attachments = snapshot.attachments_on(node)
    if not attachments:
        return []
    staying = {
        pod.key
        for pod in snapshot.pods_on(node)
        if not must_go(pod.shape) or (pod.shape.is_daemon and _tolerates(pod.shape))  # it comes back
    }
    return sorted(
        attachment.volume for attachment in attachments if not staying.intersection(attachment.pods)
    )


def protected_for(annotation: str | None) -> timedelta | None:
    """Return how long `karpenter.sh/do-not-disrupt` protects a pod, counted from its start; None for not at all.

    `true` means forever (`timedelta.max`). Other valid values are positive durations in Go's format, of at most 292
    years. Anything else protects nothing, as in Karpenter.
    """
    if annotation == "true":
        return timedelta.max
    span = go_duration(annotation) if annotation is not None else None
    return span if span is not None and timedelta(0) < span < timedelta(seconds=LONGEST_SECONDS) else None


def refuses_disruption(pod: Pod, now: datetime) -> bool:
    """Return whether a pod refuses disruption by its annotation. One that has not started is still protected."""
    span = protected_for(pod.shape.annotations.get(DO_NOT_DISRUPT))
    if span is None:
        return False
    return span == timedelta.max or pod.started_at is None or now - pod.started_at < span


def protected_until(pod: Pod) -> datetime | None:
    """Return when the protection of a pod by its annotation ends, None if it has none, or one that never ends."""
    span = protected_for(pod.shape.annotations.get(DO_NOT_DISRUPT))
    if span is None or span == timedelta.max or pod.started_at is None:
        return None
    return pod.started_at + span


class Allowances:
    """What PodDisruptionBudgets still allow in one look. It shrinks as pods are chosen for eviction."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._left: dict[str, int] = {}
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for budget in budgets:
            self._left[budget.key] = budget.disruptions_allowed
            self._by_namespace.setdefault(budget.namespace, []).append(budget)
        self._guards: dict[Shape, tuple[PodDisruptionBudget, ...]] = {}

    @property
    def are_limited(self) -> bool:
        """Whether there is any budget."""
        return bool(self._left)

    def guards(self, shape: Shape) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets that select pods of a shape."""
        if shape not in self._guards:
            near = self._by_namespace.get(shape.namespace, ())
            self._guards[shape] = tuple(budget for budget in near if budget.selects(shape))
        return self._guards[shape]

    def never_allow(self, pod: Pod) -> bool:
        """Return whether a budget selects the pod that, as configured, never allows an eviction."""
        return any(budget.never_allows for budget in self.guards(pod.shape))

    def is_never_evictable(self, pod: Pod) -> bool:
        """Return whether no eviction of the pod will be allowed until the pod, a budget or its replicas change."""
        if pod.starting:
            return False
        guards = self.guards(pod.shape)
        return len(guards) > 1 or any(b.never_allows and not _is_free(pod, b) for b in guards)

    def take(self, pod: Pod) -> bool:
        """Return whether the pod may be evicted under the API server's rules; if so, count it.

        A pod that is still starting is exempt from all budgets. Any other pod with more than one budget is always
        refused. A pod that is not ready is exempt from its budget if the budget says so, or if enough others are
        healthy.
        """
        if not self.is_evictable(pod):
            return False
        self.count(pod)
        return True

    def is_evictable(self, pod: Pod) -> bool:
        """Return whether the pod may be evicted under the API server's rules."""
        return pod.starting or self.permits(pod)

    def permits(self, pod: Pod, spent: Mapping[str, int] = _NONE) -> bool:
        """Return whether budgets allow a disruption of the pod, if `spent` evictions by budget have been used up too.

        They protect a pod that is still starting from disruption, as in Karpenter, although it could be evicted.
        """
        guards = self.guards(pod.shape)
        if len(guards) > 1:
            return False
        return (
            not guards or _is_free(pod, guards[0]) or self._left[guards[0].key] > spent.get(guards[0].key, 0)
        )

    def count(self, pod: Pod) -> None:
        """Count the pod as evicted, allowed or not."""
        budget = self.budget(pod)
        if budget:
            self._left[budget] -= 1

    def budget(self, pod: Pod) -> str:
        """Return the key of the budget that the pod's eviction would count against, empty for none."""
        guards = () if pod.starting else self.guards(pod.shape)
        return guards[0].key if len(guards) == 1 and not _is_free(pod, guards[0]) else ""


def not_evictable(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> Callable[[Pod], bool]:
    """Return a predicate for pods that cannot be evicted for now, and therefore need no other node yet.

    If the node has a deadline, only a pod annotated with `true` counts: all others are replaced ahead of it.
    """
    hurried = {claim.node_name for claim in claims if claim.is_ending and claim.deadline is not None}
    allowances = Allowances(snapshot.budgets)

    def is_kept(pod: Pod) -> bool:
        if pod.node in hurried:
            return pod.shape.annotations.get(DO_NOT_DISRUPT) == "true"
        return refuses_disruption(pod, now) or allowances.is_never_evictable(pod)

    return is_kept


def _is_free(pod: Pod, budget: PodDisruptionBudget) -> bool:
    return not pod.ready and (budget.always_allow_unhealthy or is_met(budget))


def is_met(budget: PodDisruptionBudget) -> bool:
    """Return whether as many pods are healthy as the budget requires."""
    return budget.current_healthy >= budget.desired_healthy > 0
