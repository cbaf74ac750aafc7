"""Events as `kubectl describe` shows them: what happened to an object, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An Event about a cluster-scoped object, or about a pod (`namespace/name`). The same one again is no new one."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.reason} of {self.kind} {self.name}"
