"""Which pods must not be evicted, because of their own annotations or their PodDisruptionBudgets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.times import LONGEST_SECONDS
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.snapshot import Snapshot

_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|us|µs|ns|h|m|s)"
_DURATION = re.compile(f"(?:{_PART})+", re.ASCII)
_NONE: Mapping[str, int] = FrozenMap()


def protected_for(annotation: str | None) -> timedelta | None:
    """Return how long `karpenter.sh/do-not-disrupt` protects a pod, counted from its start; None for not at all.

    `true` means forever (`timedelta.max`). Other valid values are positive durations in Go's format, of at most 292
    years. Anything else protects nothing, as in Karpenter.
    """
    if annotation == "true":
        return timedelta.max
    if annotation is None or not _DURATION.fullmatch(annotation):
        return None
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in re.findall(_PART, annotation))
    return timedelta(seconds=seconds) if 0 < seconds <= LONGEST_SECONDS else None


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
        self._budgets = tuple(budgets)
        self._left = {budget.key: budget.disruptions_allowed for budget in self._budgets}
        self._guards: dict[Shape, tuple[PodDisruptionBudget, ...]] = {}

    @property
    def are_limited(self) -> bool:
        """Whether there is any budget."""
        return bool(self._budgets)

    def guards(self, shape: Shape) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets that select pods of a shape."""
        if shape not in self._guards:
            self._guards[shape] = tuple(budget for budget in self._budgets if budget.selects(shape))
        return self._guards[shape]

    def never_allow(self, pod: Pod) -> bool:
        """Return whether a budget selects the pod that, as configured, never allows an eviction."""
        return any(budget.never_allows for budget in self.guards(pod.shape))

    def never_let_go(self, pod: Pod) -> bool:
        """Return whether no eviction of the pod will be allowed until the pod, a budget or its replicas change."""
        guards = self.guards(pod.shape)
        return len(guards) > 1 or any(b.never_allows and not _is_free(pod, b) for b in guards)

    def take(self, pod: Pod) -> bool:
        """Return whether the pod may be evicted under the API server's rules; if so, count it.

        A pod with more than one budget is always refused. A pod that is not ready is exempt from its budget if the
        budget says so, or if enough others are healthy.
        """
        if not self.permits(pod):
            return False
        self.count(pod)
        return True

    def permits(self, pod: Pod, spent: Mapping[str, int] = _NONE) -> bool:
        """Return whether the pod may be evicted, if `spent` evictions by budget have been used up in addition."""
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
        guards = self.guards(pod.shape)
        return guards[0].key if len(guards) == 1 and not _is_free(pod, guards[0]) else ""


def kept(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> Callable[[Pod], bool]:
    """Return a predicate for pods that cannot be evicted for now, and therefore need no other node yet.

    If the node has a deadline, only a pod annotated with `true` counts: all others are replaced ahead of it.
    """
    hurried = {claim.node_name for claim in claims if claim.is_ending and claim.deadline is not None}
    allowances = Allowances(snapshot.budgets)

    def is_kept(pod: Pod) -> bool:
        if pod.node in hurried:
            return pod.shape.annotations.get(DO_NOT_DISRUPT) == "true"
        return refuses_disruption(pod, now) or allowances.never_let_go(pod)

    return is_kept


def _is_free(pod: Pod, budget: PodDisruptionBudget) -> bool:
    return not pod.ready and (budget.always_allow_unhealthy or is_met(budget))


def is_met(budget: PodDisruptionBudget) -> bool:
    """Return whether as many pods are healthy as the budget requires."""
    return budget.current_healthy >= budget.desired_healthy > 0
