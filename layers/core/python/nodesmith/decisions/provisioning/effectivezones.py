"""In which zones pods that wait may run by what they ask for, as Karpenter's metrics tell it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nodesmith.decisions.scheduling.pending import provisionable
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.shapes import Shape
from nodesmith.model.kubernetes.unschedulable import CONTRADICT, NOT_ALL_VOLUMES

FLEXIBLE, NONE = "flexible", "none"
"""Karpenter's words for pods of several zones and for pods of no zone at all"""


def waiting_by_zone(pods: Iterable[Pod]) -> tuple[Counter[str], int]:
    """Count the pods that wait for a node, by the only zone that they may have, and those that no node can be had for.

    A zone is taken from node selectors, required node affinity and volumes; what other pods keep them from is not.
    Who asks for no zone at all is counted twice: nor can a node be had for it.
    """
    wanted, refused = provisionable(pods)
    known: dict[Shape, str] = {}
    zones: Counter[str] = Counter()
    for pod in wanted:
        if pod.shape not in known:
            known[pod.shape] = _zone(pod.shape)
        zones[known[pod.shape]] += 1
    ignored = [why for pod, why in refused if pod.unschedulable and not pod.nominated_node]
    nowhere = sum(NOT_ALL_VOLUMES in why or (CONTRADICT in why and ZONE in why) for why in ignored)
    return zones + Counter({NONE: nowhere}), len(ignored)


def _zone(shape: Shape) -> str:
    """Return the only zone of pods, `flexible` where there may be several, and `none` where their rules exclude all."""
    found: set[str] = set()
    for term in shape.terms:
        asked = term.get(ZONE, Requirement(ZONE, complement=True))
        if asked.complement:
            return FLEXIBLE
        found |= asked.values
    return found.pop() if len(found) == 1 else FLEXIBLE if found else NONE
