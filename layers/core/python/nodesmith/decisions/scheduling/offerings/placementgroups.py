"""Placement groups: which nodes a NodePool may launch into its EC2NodeClass's group, and how many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from nodesmith.decisions.scheduling.compatibility import TypeSet
from nodesmith.decisions.scheduling.shiftedzones import zone_of
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

    Instances that have been launched since the group was last read, or may still be, count as well. EC2 may not have
    shown some that were launched just before, so the group has at least as many as the cluster has claims in it.
    """
    group = status.placement_group
    if group is None or not group.is_limited:
        return {}
    mine = [claim for claim in claims if _is_in(claim, group)]
    own = Counter(map(zone_of, mine))
    coming = Counter(zone_of(claim) for claim in mine if claim.created_at >= status.resolved_at)
    shown = dict(group.instances)
    zones = sorted({subnet.zone for subnet in status.subnets})
    taken = {zone: max(shown.get(zone, 0) + coming[zone], own[zone]) for zone in zones}
    return {zone: max(0, MOST_SPREAD - taken[zone]) for zone in zones}


def open_zones(
    status: NodeClassStatus, claims: Iterable[NodeClaim], room: Mapping[str, int]
) -> Sequence[frozenset[str] | None]:
    """Return the zones that new instances of the group may be launched in, None for any; at least one alternative.

    A cluster group is in one zone: that of its instances. Without instances, each zone is an alternative, that of the
    subnet with most free addresses first.
    """
    group = status.placement_group
    if group is None or (group.strategy != CLUSTER and not room):
        return (None,)
    if group.strategy != CLUSTER:
        return (frozenset(zone for zone, left in room.items() if left),)
    known = sorted(zone_of(claim) for claim in claims if _is_in(claim, group))
    home = group.home or next(filter(None, known), "")
    by_room = sorted(status.subnets, key=lambda subnet: (-subnet.free_ips, subnet.zone))
    zones = [home] if home else dict.fromkeys(subnet.zone for subnet in by_room)
    return [frozenset({zone}) for zone in zones] or (None,)


def _is_in(claim: NodeClaim, group: PlacementGroup) -> bool:
    return claim.labels.get(PLACEMENT_GROUP) == group.id and claim.phase is not Phase.GIVEN_UP


def group_limit(zone: str) -> str:
    """Return the name under which a zone's room in the group is a limit, next to the limits of the NodePool."""
    return f"{_LIMIT}{zone}"


def limited_zone(name: str) -> str:
    """Return the zone whose room in a group this limit is; empty for other limits."""
    return name.removeprefix(_LIMIT) if name.startswith(_LIMIT) else ""
