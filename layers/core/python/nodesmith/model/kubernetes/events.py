"""Kubernetes Events, as `kubectl describe` shows them, and the limits of messages."""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST_MESSAGE = 1024
"""maximum number of characters in the message of an Event or a condition, which may quote user input"""
AWAITING = "AwaitingReconciliation", "object is awaiting reconciliation"
"""Karpenter's reason and message for a condition whose status is not known yet."""


def shortened(message: str) -> str:
    """Return a message, truncated if it is too long."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"


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
