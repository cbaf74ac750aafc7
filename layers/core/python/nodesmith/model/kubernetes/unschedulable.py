"""Reasons: why pods find no place, and the one thing that would let them in."""

from __future__ import annotations

from dataclasses import dataclass

OPTED_OUT = "opted out"
"""How the reason begins for pods that want no node of ours."""
CONTRADICT = "contradict each other on"
NOT_ALL_VOLUMES = "no node reaches all its volumes"
"""Said where what a pod asks for rules out every node, whatever NodePools offer"""


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """`text` says why to a person, in a sentence; `fix` is what would help, empty where nothing is known.

    Some sentences end with what would help.

    `nodepool` is the NodePool that came nearest to serving the pods, `blocking` the one thing in the way there, as
    `taint gpu=true:NoSchedule`, `requirement kubernetes.io/arch In [arm64]`, `resource cpu` or `limit nodes`; both are
    empty where there is no such thing.
    """

    text: str
    nodepool: str = ""
    blocking: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return self.text if self.text.endswith(self.fix) else f"{self.text}; {self.fix}"
