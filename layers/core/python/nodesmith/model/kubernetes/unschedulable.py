"""Reasons why pods cannot be placed, and what would fix that."""

from __future__ import annotations

from dataclasses import dataclass

OPTED_OUT = "opted out"
"""Start of the reason for pods that exclude nodes of NodePools."""
CONTRADICT = "contradict each other on"
NOT_ALL_VOLUMES = "no node reaches all its volumes"
"""Part of the reason for pods whose own constraints exclude every node, whatever the NodePools offer"""


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """Why pods cannot be placed. `text` explains it to users in a sentence, and may already end with the fix.

    `fix` is what would help, empty if unknown. `nodepool` is the NodePool that came closest to accepting the pods, and
    `blocking` is the one obstacle there, such as `taint gpu=true:NoSchedule`, `requirement kubernetes.io/arch In
    [arm64]`, `resource cpu` or `limit nodes`. Both are empty if there is none.
    """

    text: str
    nodepool: str = ""
    blocking: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return self.text if self.text.endswith(self.fix) else f"{self.text}; {self.fix}"
