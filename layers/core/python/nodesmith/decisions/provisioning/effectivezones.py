"""In which zones pending pods may run by what they ask for, as Karpenter's metrics report it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nodesmith.decisions.scheduling.pending import provisionable
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.kubernetes.pods import CONTRADICT, NOT_ALL_VOLUMES, Pod, Shape

FLEXIBLE, NONE = "flexible", "none"
"""The values Karpenter reports for pods that allow several zones and for pods that allow none."""


def waiting_by_zone(pods: Iterable[Pod]) -> tuple[Counter[str], int]:
    """Count the pods that wait for a node by their only possible zone; also return how many pods no node can serve.

    A zone is taken from node selectors, required node affinity and volumes; rules about other pods do not count. A pod
    that allows no zone at all is in both counts, since no node can serve it.
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
    """Return the only zone of pods, `flexible` if there may be several, and `none` if their rules exclude all."""
    found: set[str] = set()
    for term in shape.terms:
        asked = term.get(ZONE, Requirement(ZONE, complement=True))
        if asked.complement:
            return FLEXIBLE
        found |= asked.values
    return found.pop() if len(found) == 1 else FLEXIBLE if found else NONE
