"""PodDisruptionBudgets (policy/v1): how many pods may be evicted, and which budgets never allow any eviction.

The arithmetic is kube-controller-manager's (pkg/controller/disruption): a percentage of the expected pods is rounded up
for minAvailable and maxUnavailable alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.requirements import Selector, parse_selector
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.kubernetes.shapes import Shape

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
        return 0 < self.expected_pods <= _amount_of(self.min_available, self.expected_pods)


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


def _amount_of(text: str, expected: int) -> int:
    return -(-int(text[:-1]) * expected // 100) if text.endswith("%") else int(text)
