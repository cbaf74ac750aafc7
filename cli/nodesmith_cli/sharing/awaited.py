"""What a removal waits for: NodeClaims and Nodes that are still there, and what each of them waits for itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nodesmith_cli.sharing.survey import Manifest, Survey, name_of


@dataclass(frozen=True, slots=True)
class Awaited:
    """An object that is still there; `why` is what it waits for, empty where it does not say."""

    kind: str
    name: str
    why: str = ""

    def __str__(self) -> str:
        """Return `Kind/name (why)`."""
        return f"{self.kind}/{self.name}" + (f" ({self.why})" if self.why else "")


def awaited(survey: Survey) -> list[Awaited]:
    """Return our NodeClaims and Nodes that are still there, by kind and name."""
    return [
        *(Awaited("NodeClaim", name_of(each), _why(each)) for each in sorted(survey.nodeclaims, key=name_of)),
        *(Awaited("Node", name_of(each)) for each in sorted(survey.nodes, key=name_of)),
    ]


def _why(nodeclaim: Manifest) -> str:
    """Return the message of the first step of the NodeClaim's end that is not reached."""
    return next(_messages(nodeclaim), "")


def _messages(nodeclaim: Manifest) -> Iterator[str]:
    conditions = {str(c.get("type")): c for c in (nodeclaim.get("status") or {}).get("conditions") or ()}
    for step in ("Drained", "VolumesDetached", "InstanceTerminating"):
        condition = conditions.get(step)
        if condition is not None and condition.get("status") != "True" and condition.get("message"):
            yield str(condition["message"])
