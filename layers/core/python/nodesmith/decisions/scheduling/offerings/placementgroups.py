"""Placement groups: which nodes a NodePool may launch into its EC2NodeClass's group, and how many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from nodesmith.decisions.scheduling.compatibility import TypeSet
from nodesmith.decisions.scheduling.nodes.shiftedzones import zone_of
from nodesmith.model.apimachinery.labels import PARTITION, PLACEMENT_GROUP
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodeclasses.status import CLUSTER, MOST_SPREAD, NodeClassStatus, PlacementGroup

_LIMIT = "placement-group/"
_NOT_IN_CLUSTERS = re.compile(r"(?:t\d\w*|mac[\w-]*|vt1|[cm]1|m[23]|\w+-flex)\.")


@lru_cache(maxsize=64)
def group_requirements(group: PlacementGroup | None) -> Requirements:
    """Return what nodes of a group have in common: its id, and for a partition group the numbers of its partitions."""
    if group is None:
        return NO_REQUIREMENTS
    found = {PLACEMENT_GROUP: Requirement(PLACEMENT_GROUP, frozenset({group.id}))}
    if group.partitions:
        numbers = frozenset(str(number + 1) for number in range(group.partitions))
        found[PARTITION] = Requirement(PARTITION, numbers)
    return Requirements(found)


@lru_cache(maxsize=16)
def types_of_group(types: TypeSet, strategy: str) -> TypeSet:
    """Return the types that EC2 launches into groups with this strategy."""
    kept = tuple(t for t in types.types if supports(t.name, strategy))
    return types if len(kept) == len(types.types) else TypeSet(kept)


def supports(instance_type: str, strategy: str) -> bool:
    """Return whether EC2 launches a type into groups with this strategy.

    It does with one exception, "Rules and limitations" of cluster groups in the EC2 user guide: burstable, flexible and
    Mac types, and those of the first generations.
    """
    return strategy != CLUSTER or _NOT_IN_CLUSTERS.match(instance_type) is None


def group_room(status: NodeClassStatus, claims: Iterable[NodeClaim]) -> dict[str, int]:
    """Return how many more instances fit into the group, by zone of its EC2NodeClass's subnets; empty without a limit.

    Instances that have been launched since the group was last read, or may still be, count as well.
    """
    group = status.placement_group
    if group is None or not group.is_limited:
        return {}
    taken = Counter(dict(group.instances))
    for zone, count in _coming(group, status, claims).items():
        taken[zone] += count
    return {zone: max(0, MOST_SPREAD - taken[zone]) for zone in sorted({s.zone for s in status.subnets})}


def open_zones(
    status: NodeClassStatus, claims: Iterable[NodeClaim], room: Mapping[str, int]
) -> frozenset[str] | None:
    """Return the zones that new instances of the group may be launched in; None for any.

    A cluster group is in one zone: that of its instances, or else the zone whose subnet has most free addresses.
    """
    group = status.placement_group
    if group is None:
        return None
    if group.strategy == CLUSTER:
        zones = sorted(_coming(group, status, claims))
        home = group.home or next(iter(zones), "")
        largest = max(status.subnets, key=lambda s: (s.free_ips, s.zone), default=None)
        return frozenset({home or (largest.zone if largest else "")})
    return frozenset(zone for zone, left in room.items() if left) if room else None


def _coming(group: PlacementGroup, status: NodeClassStatus, claims: Iterable[NodeClaim]) -> Counter[str]:
    """Count the instances of the group that EC2 has not shown yet, by zone."""
    mine = (c for c in claims if c.labels.get(PLACEMENT_GROUP) == group.id and c.phase is not Phase.GIVEN_UP)
    return Counter(zone_of(c) for c in mine if c.created_at >= status.resolved_at)


def group_limit(zone: str) -> str:
    """Return the name under which a zone's room in the group is a limit, next to the limits of the NodePool."""
    return f"{_LIMIT}{zone}"


def limited_zone(name: str) -> str:
    """Return the zone whose room in a group this limit is; empty for other limits."""
    return name.removeprefix(_LIMIT) if name.startswith(_LIMIT) else ""
