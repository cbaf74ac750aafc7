"""Which pods run on Windows nodes: those that say so. All others are taken for Linux pods, whose images fail there.

kube-scheduler does not compare operating systems, so a pod says so by what it selects or tolerates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nodesmith.model.apimachinery.labels import HOSTNAME, NODECLASS, NODEPOOL, OS, WELL_KNOWN, WINDOWS_BUILD
from nodesmith.model.apimachinery.taints import Effect, Taint
from nodesmith.model.kubernetes.pods import Shape

WINDOWS = "windows"
_TELLING = frozenset({OS, WINDOWS_BUILD, NODEPOOL, NODECLASS, HOSTNAME})
"""Labels whose selection says which nodes are meant."""


def is_for_linux(shape: Shape, labels: Collection[str], taints: Iterable[Taint]) -> bool:
    """Return whether nothing about pods says that Windows nodes with these labels and taints are theirs.

    They say so if they select the operating system, the NodePool or a label that is the user's own, or tolerate a taint
    that keeps other pods off. The pods must be admitted by labels and taints otherwise.
    """
    if any(taint.effect != Effect.PREFER_NO_SCHEDULE for taint in taints):
        return False
    telling = _TELLING.union(key for key in labels if key not in WELL_KNOWN)
    return all(telling.isdisjoint(term) for term in shape.terms)
