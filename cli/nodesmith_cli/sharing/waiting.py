"""What a removal waits for: the remaining NodeClaims and Nodes, and what each of them waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nodesmith_cli.sharing.ownership import ClusterOwnership, Manifest
from nodesmith_formats.kubernetes.objects import name_of


@dataclass(frozen=True, slots=True)
class Awaited:
    """An object that still exists. `reason` is what it waits for, or empty if unknown."""

    kind: str
    name: str
    reason: str = ""

    def __str__(self) -> str:
        """Return `Kind/name (why)`."""
        return f"{self.kind}/{self.name}" + (f" ({self.reason})" if self.reason else "")


def awaited(ownership: ClusterOwnership) -> list[Awaited]:
    """Return our remaining NodeClaims and Nodes, sorted by kind and name."""
    return [
        *(
            Awaited("NodeClaim", name_of(nodeclaim), _why(nodeclaim))
            for nodeclaim in sorted(ownership.nodeclaims, key=name_of)
        ),
        *(Awaited("Node", name_of(node)) for node in sorted(ownership.nodes, key=name_of)),
    ]


def _why(nodeclaim: Manifest) -> str:
    """Return the message of the first incomplete step of a NodeClaim's termination."""
    return next(_messages(nodeclaim), "")


def _messages(nodeclaim: Manifest) -> Iterator[str]:
    conditions = {str(c.get("type")): c for c in (nodeclaim.get("status") or {}).get("conditions") or ()}
    for step in ("Drained", "VolumesDetached", "InstanceTerminating"):
        condition = conditions.get(step)
        if condition is not None and condition.get("status") != "True" and condition.get("message"):
            yield str(condition["message"])
