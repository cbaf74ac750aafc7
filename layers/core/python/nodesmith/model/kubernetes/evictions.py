"""Evictions of pods, and the PodDisruptionBudgets (policy/v1) that limit them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nodesmith.model.apimachinery.requirements import Selector, parse_selector
from nodesmith.model.kubernetes.pods import Manifest, Shape

# The arithmetic is kube-controller-manager's (pkg/controller/disruption): a percentage of the expected pods is
# rounded up for minAvailable and maxUnavailable alike.
_AMOUNT = re.compile(r"[0-9]{1,9}%?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PodDisruptionBudget:
    """A PodDisruptionBudget with the counts in its status. `key` is `namespace/name`.

    `min_available` and `max_unavailable` are a number or a percentage as written, empty if not set. If
    `always_allow_unhealthy` is True, pods that are not ready may be evicted regardless of the budget
    (unhealthyPodEvictionPolicy).
    """

    key: str
    selector: Selector | None
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    expected_pods: int
    always_allow_unhealthy: bool
    min_available: str
    max_unavailable: str

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    def selects(self, shape: Shape) -> bool:
        """Return whether it selects pods of a shape. None selects nothing; an empty selector selects the namespace."""
        return (
            self.selector is not None
            and self.namespace == shape.namespace
            and self.selector.matches(shape.labels)
        )

    @property
    def never_allows(self) -> bool:
        """True if no ready pod can ever be evicted, however many are ready, unless the budget or replicas change."""
        if self.max_unavailable:
            return int(self.max_unavailable.rstrip("%")) == 0
        if not self.min_available:
            return True  # without either field it expects no pods, and so allows no evictions
        if self.min_available == "100%":
            return True
        return 0 < self.expected_pods <= amount_of(self.min_available, self.expected_pods)


def parse_budget(manifest: Manifest) -> PodDisruptionBudget:
    """Read a PodDisruptionBudget, reduced or whole.

    A status of an older spec allows nothing, because the API server refuses evictions then. Raises KeyError, TypeError,
    AttributeError or ValueError for content that no API server accepts.
    """
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    is_current = int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0)
    return PodDisruptionBudget(
        key=f"{metadata['namespace']}/{metadata['name']}",
        selector=parse_selector(spec.get("selector")),
        disruptions_allowed=int(status.get("disruptionsAllowed") or 0) if is_current else 0,
        current_healthy=int(status.get("currentHealthy") or 0),
        desired_healthy=int(status.get("desiredHealthy") or 0),
        expected_pods=int(status.get("expectedPods") or 0),
        always_allow_unhealthy=spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
        min_available=_amount(spec, "minAvailable"),
        max_unavailable=_amount(spec, "maxUnavailable"),
    )


def _amount(spec: Manifest, name: str) -> str:
    value: Any = spec.get(name)
    if value is None:
        return ""
    if not _AMOUNT.fullmatch(str(value)):
        raise ValueError(f"spec.{name} is {value!r}: must be a number of pods or a percentage such as 50%")
    return str(value)


def amount_of(text: str, expected: int) -> int:
    """Return an amount of pods; a share is rounded up, as kube-controller-manager does it for both fields."""
    return -(-int(text[:-1]) * expected // 100) if text.endswith("%") else int(text)


BUDGET = "DisruptionBudget"
"""An eviction was refused: a PodDisruptionBudget allows none now, or its status is outdated."""
SEVERAL_BUDGETS = "SeveralDisruptionBudgets"
"""An eviction was refused: more than one PodDisruptionBudget selects the pod, which Kubernetes does not support."""
DENIED = "Denied"
"""An eviction was refused: an admission webhook or policy denied it."""


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod (`namespace/name`), valid while it is bound to `node`.

    `grace_seconds` is its grace period, None for the pod's own. `budget` is the PodDisruptionBudget that its eviction
    counts against, empty if there is none.
    """

    pod: str
    node: str
    grace_seconds: int | None = None
    budget: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.pod


@dataclass(frozen=True, slots=True)
class Evicted:
    """The pod is ending. `before` is True if it was already ending. `uid` is the pod's uid, empty if unknown."""

    uid: str = field(default="", compare=False)
    before: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Gone:
    """The pod no longer runs on the node."""


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """The pod stays for now. `reason` is BUDGET, SEVERAL_BUDGETS or DENIED, and `message` is the API server's."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Postponed:
    """The eviction was not requested because others that count against the same budget took too long. Try again."""


Eviction: TypeAlias = Evicted | Gone | EvictionRefused | Postponed
