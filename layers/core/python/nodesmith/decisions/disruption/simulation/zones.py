"""How evenly pods are spread over zones, and in which zone a new node goes if several have the same price.

The pods that a spread over zones selects form a group. In each zone, the pods beyond those of the group's emptiest zone
plus maxSkew are in excess, whether the spread is preferred (ScheduleAnyway) or required. A zone counts if it has such
pods or a node for them, or if a node for them can be bought there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import only
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.requirements import Selector
from nodesmith.model.kubernetes.pods import Shape, Spread

ZonesForSale = Callable[[Shape], Iterable[str]]
"""returns the zones in which nodes for pods of a shape can be bought"""
_Shift = Counter[tuple["_Group", str]]
_SAME_USD = 1e-9
_Hosted = Counter[tuple[str, Shape]]
_ZoneSpreads = Sequence[tuple[str, Spread]]


@dataclass(slots=True, eq=False)
class _Group:
    """The pods that one spread counts, by zone. `is_moving` is True while some of them are in transit."""

    namespace: str
    selector: Selector
    max_skew: int
    counts: dict[str, int]
    is_moving: bool = False

    def counts_pods_of(self, shape: Shape) -> bool:
        return shape.namespace == self.namespace and self.selector.matches(shape.labels)

    def excess(self, zone: str, shift: _Shift) -> int:
        """Return the number of excess pods in a zone after the shift."""
        fewest = min(count + shift[self, name] for name, count in self.counts.items())
        return max(0, self.counts.get(zone, 0) + shift[self, zone] - fewest - self.max_skew)

    def whole_excess(self, shift: _Shift) -> int:
        """Return the number of excess pods in all zones."""
        return sum(self.excess(zone, shift) for zone in self.counts)


class Zones:
    """The groups of all spreads over zones. `shapes` are pods' shapes by namespace/name, `on_their_way` such names.

    While pods of a group are in transit, the group's evenness is not evaluated, since their destinations are unknown.
    """

    def __init__(
        self,
        existing_nodes: Iterable[ExistingNode],
        shapes: Mapping[str, Shape],
        sold: ZonesForSale,
        on_their_way: Collection[str] = (),
    ) -> None:
        self._shapes = shapes
        self._zone_of: dict[str, str] = {}
        existing_nodes = [existing for existing in existing_nodes if existing.labels.get(ZONE)]
        self._groups = list(_groups(dict.fromkeys(shapes.values()), existing_nodes, sold))
        self._of: dict[Shape, list[_Group]] = {}
        for existing in existing_nodes:
            self._zone_of[existing.name] = existing.labels[ZONE]
            for shape, count in existing.hosted.items():
                for group in self._counting(shape):
                    zone = existing.labels[ZONE]
                    group.counts[zone] = group.counts.get(zone, 0) + count - existing.leaving[shape]
        for key in on_their_way:
            self._await(shapes[key])

    def surplus(self, candidate: Candidate) -> int:
        """Return how many of a node's pods are in excess in its zone, at most the excess of each group there."""
        zone, none = self._zone_of.get(candidate.node.name, ""), _Shift()
        mine = Counter(group for pod in candidate.pods for group in self._counting(self._shapes[pod.key]))
        return sum(min(n, group.excess(zone, none)) for group, n in mine.items() if not group.is_moving)

    def gain(
        self,
        sources: Sequence[Candidate],
        destinations: Mapping[str, str],
        replacements: Sequence[PlannedNode],
    ) -> int:
        """Return by how much a move reduces the number of excess pods; negative if it increases it.

        It is -1 if pods of an affected group are in transit. For a node that may launch in several zones, the worst is
        assumed.
        """
        shift = self._shift(sources, destinations, replacements)
        touched = list(dict.fromkeys(group for group, _ in shift))
        if any(group.is_moving for group in touched):
            return -1
        none = _Shift()
        return sum(group.whole_excess(none) - group.whole_excess(shift) for group in touched)

    def settle(
        self,
        sources: Sequence[Candidate],
        destinations: Mapping[str, str],
        replacements: Sequence[PlannedNode],
    ) -> None:
        """Count these nodes' pods as moved."""
        for (group, zone), number in self._shift(sources, destinations, replacements).items():
            group.counts[zone] = group.counts.get(zone, 0) + number

    def wait_for(self, sources: Iterable[Candidate]) -> None:
        """Mark these nodes' pods as in transit: until they have arrived, none of their groups is rebalanced."""
        for shape in dict.fromkeys(self._shapes[pod.key] for source in sources for pod in source.pods):
            self._await(shape)

    def _await(self, shape: Shape) -> None:
        for group in self._counting(shape):
            group.is_moving = True

    def _counting(self, shape: Shape) -> list[_Group]:
        """Return the groups that count pods of a shape."""
        if shape not in self._of:
            mine = [group for group in self._groups if group.counts_pods_of(shape)] if shape.moves else []
            self._of[shape] = mine
        return self._of[shape]

    def _shift(
        self,
        sources: Sequence[Candidate],
        destinations: Mapping[str, str],
        replacements: Sequence[PlannedNode],
    ) -> _Shift:
        """Return by how much the number of pods of each group changes in each zone."""
        shift, homes = _Shift(), {node.claim.name: node for node in replacements}
        for source in sources:
            zone = self._zone_of.get(source.node.name, "")
            for pod in source.pods if zone else ():
                if pod.deleting:
                    continue
                for group in self._counting(self._shapes[pod.key]):
                    shift[group, zone] -= 1
        for key, place in destinations.items():
            zones = _zones_of(homes[place]) if place in homes else [self._zone_of.get(place, "")]
            for group in self._counting(self._shapes[key]):
                fullest = max(zones, key=lambda zone: (group.counts.get(zone, 0) + shift[group, zone], zone))
                shift[group, fullest] += 1
        return shift


def _groups(
    shapes: Iterable[Shape], existing_nodes: Sequence[ExistingNode], sold: ZonesForSale
) -> Iterator[_Group]:
    """Yield one group for each distinct spread.

    Equal spreads of pods that may be in the same zones count the same pods, so they form one group.
    """
    seen_keys: set[tuple[str, str, int, tuple[str, ...]]] = set()
    for shape in shapes:
        spreads = [s for s in shape.spreads if s.topology_key == ZONE and s.selector is not None]
        if not spreads or not shape.moves:
            continue
        zones = {zone for zone in sold(shape) if zone}
        for existing in existing_nodes:
            if existing.labels[ZONE] not in zones and existing.admits(shape):
                zones.add(existing.labels[ZONE])
        for spread in spreads:
            if spread.selector is None or not zones:
                continue
            key = shape.namespace, spread.selector.key, spread.max_skew, tuple(sorted(zones))
            if key not in seen_keys:
                seen_keys.add(key)
                yield _Group(shape.namespace, spread.selector, spread.max_skew, dict.fromkeys(key[3], 0))


def _zones_of(node: PlannedNode) -> list[str]:
    return sorted({override.zone for override in node.request.overrides})


def evenly(
    nodes: Sequence[PlannedNode],
    templates: Mapping[str, Template],
    existing_nodes: Iterable[ExistingNode],
    shapes: Mapping[str, Shape],
) -> tuple[PlannedNode, ...]:
    """Return the nodes, each in the zone that its pods' preferred spreads favor, if that costs nothing.

    `templates` are by NodePool, `existing_nodes` are all other nodes, `shapes` are pods' shapes by namespace/name.
    """
    spreads_by_node = [_zone_spreads(shapes[key] for key in node.claim.nominated) for node in nodes]
    if not any(spreads_by_node):
        return tuple(nodes)
    hosted: _Hosted = Counter()
    for existing in existing_nodes:
        for shape, count in existing.hosted.items():
            hosted[existing.labels.get(ZONE, ""), shape] += count - existing.leaving[shape]
    settled_nodes = []
    for node, spreads in zip(nodes, spreads_by_node, strict=True):
        settled = _settled(node, templates[node.claim.nodepool], spreads, hosted)
        zones = {override.zone for override in settled.request.overrides}
        if len(zones) == 1:
            hosted.update((zone, shapes[key]) for zone in zones for key in node.claim.nominated)
        settled_nodes.append(settled)
    return tuple(settled_nodes)


def _settled(node: PlannedNode, template: Template, spreads: _ZoneSpreads, hosted: _Hosted) -> PlannedNode:
    zones = _cheapest_zones(node)
    if not spreads or len(zones) < 2:
        return node
    zone = min(zones, key=lambda candidate: (_counted_pods(candidate, spreads, hosted), candidate))
    return only(node, [o for o in node.request.overrides if o.zone == zone], template) or node


def _zone_spreads(shapes: Iterable[Shape]) -> _ZoneSpreads:
    """Return the preferred spreads over zones (ScheduleAnyway), each with its namespace."""
    return [
        (shape.namespace, spread)
        for shape in dict.fromkeys(shapes)
        for spread in shape.spreads
        if spread.topology_key == ZONE and not spread.hard and spread.selector is not None
    ]


def _counted_pods(zone: str, spreads: _ZoneSpreads, hosted: _Hosted) -> int:
    """Return the number of pods in a zone that these spreads count."""
    return sum(
        count
        for namespace, spread in spreads
        for (pod_zone, shape), count in hosted.items()
        if pod_zone == zone and spread.selects(shape, namespace)
    )


def _cheapest_zones(node: PlannedNode) -> list[str]:
    """Return the zones in which a node is available at its lowest price."""
    price_limit = node.request.cheapest.price_hourly_usd + _SAME_USD
    return sorted({o.zone for o in node.request.overrides if o.price_hourly_usd <= price_limit})
