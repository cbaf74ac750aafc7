"""Kubernetes Events, as `kubectl describe` shows them: what happened to an object, and why."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An Event about a cluster-scoped object or a pod (`namespace/name`). Repeating the same Event adds no new one."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False
    uid: str = field(default="", compare=False)
    """The uid of the object if it is known; otherwise it is looked up."""

    def __str__(self) -> str:
        return f"{self.reason} of {self.kind} {self.name}"
