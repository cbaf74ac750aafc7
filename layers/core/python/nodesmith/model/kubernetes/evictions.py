"""Evictions: pods that are to leave their nodes, and what the API server says to that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

BUDGET = "DisruptionBudget"
"""Why an eviction is refused: a PodDisruptionBudget allows none now, or has not been counted since it changed."""
SEVERAL_BUDGETS = "SeveralDisruptionBudgets"
"""Why an eviction is refused: more than one PodDisruptionBudget selects the pod, which Kubernetes does not support."""
DENIED = "Denied"
"""Why an eviction is refused: an admission webhook or policy does not want it."""


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod (`namespace/name`) as long as it is bound to `node`. It gets its own grace, or `grace_seconds`.

    `budget` is the PodDisruptionBudget that its eviction counts for, as far as there is one.
    """

    pod: str
    node: str
    grace_seconds: int | None = None
    budget: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.pod


@dataclass(frozen=True, slots=True)
class Evicted:
    """The pod is ending: it has been told, or had been `before`. `uid` is its own, as far as it is known."""

    uid: str = field(default="", compare=False)
    before: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Gone:
    """No such pod runs on that node any more."""


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """The pod stays for now. `reason` is BUDGET, SEVERAL_BUDGETS or DENIED; `message` is the API server's own."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Postponed:
    """The pod has not been asked: evictions that count for the same budget took their time. Look again."""


Eviction: TypeAlias = Evicted | Gone | EvictionRefused | Postponed
