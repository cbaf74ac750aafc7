"""Events as `kubectl describe` shows them: what happened to an object, and why."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """An Event about a cluster-scoped object, or about a pod (`namespace/name`). The same one again is no new one."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False
    uid: str = field(default="", compare=False)
    """The object's, where it is known; else it is looked up."""

    def __str__(self) -> str:
        return f"{self.reason} of {self.kind} {self.name}"
