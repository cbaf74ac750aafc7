"""Evictions: pods that must leave their nodes, and the responses of the API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

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
