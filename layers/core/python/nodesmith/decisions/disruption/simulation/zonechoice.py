"""Zone choice: among zones at the same price, a new node goes where preferred spreads have the fewest pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodesmith.decisions.disruption.worth.replacements import only
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.scheduling.nodes.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.kubernetes.pods import Shape, Spread

_SAME_USD = 1e-9
_Hosted = Counter[tuple[str, Shape]]
_Asked = Sequence[tuple[str, Spread]]


def evenly(
    nodes: Sequence[PlannedNode],
    templates: Mapping[str, Template],
    existing_nodes: Iterable[ExistingNode],
    shapes: Mapping[str, Shape],
) -> tuple[PlannedNode, ...]:
    """Return the nodes, each in the zone that its pods' preferred spreads favor, if that costs nothing.

    `templates` are by NodePool, `existing_nodes` are the nodes besides these, `shapes` are pods' shapes by
    namespace/name.
    """
    asked = [_asked(shapes[key] for key in node.claim.nominated) for node in nodes]
    if not any(asked):
        return tuple(nodes)
    hosted: _Hosted = Counter()
    for existing in existing_nodes:
        for shape, count in existing.hosted.items():
            hosted[existing.labels.get(ZONE, ""), shape] += count - existing.leaving[shape]
    found = []
    for node, spreads in zip(nodes, asked, strict=True):
        settled = _settled(node, templates[node.claim.nodepool], spreads, hosted)
        zones = {override.zone for override in settled.request.overrides}
        if len(zones) == 1:
            hosted.update((zone, shapes[key]) for zone in zones for key in node.claim.nominated)
        found.append(settled)
    return tuple(found)


def _settled(node: PlannedNode, template: Template, spreads: _Asked, hosted: _Hosted) -> PlannedNode:
    zones = _cheapest_zones(node)
    if not spreads or len(zones) < 2:
        return node
    zone = min(zones, key=lambda each: (_crowd(each, spreads, hosted), each))
    return only(node, [o for o in node.request.overrides if o.zone == zone], template) or node


def _asked(shapes: Iterable[Shape]) -> _Asked:
    """Return the preferred spreads over zones (ScheduleAnyway), each with its namespace."""
    return [
        (shape.namespace, spread)
        for shape in dict.fromkeys(shapes)
        for spread in shape.spreads
        if spread.topology_key == ZONE and not spread.hard and spread.selector is not None
    ]


def _crowd(zone: str, spreads: _Asked, hosted: _Hosted) -> int:
    """Return the number of pods in a zone that these spreads count."""
    return sum(
        count
        for namespace, spread in spreads
        for (there, shape), count in hosted.items()
        if there == zone and spread.selects(shape, namespace)
    )


def _cheapest_zones(node: PlannedNode) -> list[str]:
    """Return the zones in which a node is available at its lowest price."""
    most = node.request.cheapest.price_hourly_usd + _SAME_USD
    return sorted({o.zone for o in node.request.overrides if o.price_hourly_usd <= most})
