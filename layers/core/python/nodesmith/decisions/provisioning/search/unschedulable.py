"""Pods that nothing can serve now, not even alone: they fit neither an existing node nor a node within the limits.

If only such pods are left, another attempt is in vain. A cluster at its limits is decided about again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le

from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.nodes.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.admission import Admission
from nodesmith.decisions.scheduling.offerings.options import undominated_offers, vector
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.kubernetes.pods import Pod, Shape


def unschedulable(
    pods: Iterable[Pod], existing_nodes: Sequence[ExistingNode], templates: Sequence[Template]
) -> int:
    """Return how many pods have no place whatever happens to all others."""
    known: dict[Shape, bool] = {}
    count = 0
    for pod in pods:
        if pod.shape not in known:
            known[pod.shape] = not _is_servable(pod.shape, existing_nodes, templates)
        count += known[pod.shape]
    return count


def _is_servable(shape: Shape, existing_nodes: Iterable[ExistingNode], templates: Iterable[Template]) -> bool:
    if any(existing.fits(shape, 1) and existing.admits(shape) for existing in existing_nodes):
        return True
    return any(_holds(template, shape) for template in templates)


def _holds(template: Template, shape: Shape) -> bool:
    names = tuple(sorted(shape.requests.nonzero()))
    size, limits = vector(shape.requests, names), tuple(sorted(template.remaining))
    most = vector(template.remaining, limits)
    admission = Admission(template, (Demand(shape, ()),))
    return any(
        all(map(le, size, offer.room)) and all(map(le, offer.cost, most))
        for type_options in (template.type_options, template.reserved)
        for _, types, purchase_options in admission.alike(type_options)
        for offer in undominated_offers(type_options, types, purchase_options, names, limits)
    )
