"""Terminating pods, and the disruption budgets that guard pods, as an API server and its controllers treat them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.kubernetes.evictions import BUDGET, SEVERAL_BUDGETS, EvictionRefused

Manifest = Mapping[str, Any]
_USUAL_GRACE_SECONDS = 30


def refusal(pod: Manifest, pods: Iterable[Manifest], budgets: Iterable[Manifest]) -> EvictionRefused | None:
    """Return why a pod may not be evicted now, or None if it may."""
    guards = list(guarding(pod, budgets))
    if is_ending(pod) or (pod.get("status") or {}).get("phase") == "Pending" or not guards:
        return None
    if len(guards) > 1:
        return EvictionRefused(SEVERAL_BUDGETS, "This pod has more than one PodDisruptionBudget")
    healthy, desired = counted(guards[0], pods)
    spare = healthy - desired
    if not is_ready(pod):
        always = guards[0]["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or (desired > 0 and spare >= 0):
            return None
    if spare > 0:
        return None
    name = guards[0]["metadata"]["name"]
    why = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return EvictionRefused(BUDGET, why)


def guarding(pod: Manifest, budgets: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield the budgets that select a pod."""
    namespace, labels = pod["metadata"].get("namespace"), pod["metadata"].get("labels") or {}
    for budget in budgets:
        selector = parse_selector(budget["spec"].get("selector"))
        is_near = budget["metadata"].get("namespace") == namespace
        if is_near and selector is not None and selector.matches(labels):
            yield budget


def counted(budget: Manifest, pods: Iterable[Manifest]) -> tuple[int, int]:
    """Return how many healthy pods a budget has, and how many it needs.

    It expects `status.expectedPods` pods, which stands for its workload's replicas, or else all existing ones.
    """
    own = [pod for pod in pods if any(guarding(pod, [budget])) and not is_over(pod)]
    healthy = sum(is_ready(pod) and not is_ending(pod) for pod in own)
    expected = (budget.get("status") or {}).get("expectedPods", len(own))
    spec = budget["spec"]
    if spec.get("maxUnavailable") is not None:
        return healthy, max(0, expected - _amount(spec["maxUnavailable"], expected))
    return healthy, _amount(spec.get("minAvailable") or 0, expected)


def _amount(value: int | str, expected: int) -> int:
    """Return an amount as a count; percentages are rounded up for both kinds of budgets."""
    text = str(value)
    return -(-int(text[:-1]) * expected // 100) if text.endswith("%") else int(text)


def ending(pod: Manifest, grace_seconds: int | None, now: datetime) -> dict[str, Any] | None:
    """Return the terminating pod, or None if it is gone at once. A grace period can be shortened, never prolonged."""
    metadata, own = pod["metadata"], pod["spec"].get("terminationGracePeriodSeconds", _USUAL_GRACE_SECONDS)
    grace, since = own if grace_seconds is None else grace_seconds, now
    if is_ending(pod):
        grace = min(grace, metadata["deletionGracePeriodSeconds"])
        since = ends_at(pod) - timedelta(seconds=metadata["deletionGracePeriodSeconds"])
    if not grace and not metadata.get("finalizers"):
        return None
    end = {"deletionTimestamp": format_time(since + timedelta(seconds=grace))}
    return {**pod, "metadata": {**metadata, **end, "deletionGracePeriodSeconds": grace}}


def ends_at(pod: Manifest) -> datetime:
    """Return when the grace period of a terminating pod is over."""
    return parse_time(pod["metadata"]["deletionTimestamp"])


def is_ending(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_over(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_ready(pod: Manifest) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
