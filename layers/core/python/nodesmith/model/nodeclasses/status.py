"""The resolved state of an EC2NodeClass: what its selectors find, whether nodes may be launched, and this as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.requirements import (
    NO_REQUIREMENTS,
    Requirements,
    read_requirements,
    write_requirements,
)

DEPENDENCIES_NOT_READY = "DependenciesNotReady"
"""The reason of a condition that only waits for others."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet that new nodes may use. `free_ips` is what EC2 last reported."""

    id: str
    zone: str
    zone_id: str = ""
    free_ips: int = 0


@dataclass(frozen=True, slots=True)
class SecurityGroup:
    """A security group, attached to every network interface."""

    id: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """A machine image, and the requirements for instance types to boot it (architecture, accelerators)."""

    id: str
    name: str = ""
    requirements: Requirements = NO_REQUIREMENTS
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class CapacityReservation:
    """A capacity reservation, which is paid for whether or not it is used.

    `available` is the number of free instances that EC2 last reported. `kind` is default or capacity-block, and
    `match_criteria` is open or targeted. An `expiring` reservation gets no new instances.
    """

    id: str
    instance_type: str
    zone: str
    available: int
    kind: str = "default"
    match_criteria: str = "targeted"
    owner_id: str = ""
    interruptible: bool = False
    expiring: bool = False
    ends_at: datetime | None = None


CLUSTER, SPREAD, PARTITION = "cluster", "spread", "partition"
MOST_SPREAD = 7
"""The most instances that a spread placement group has in a zone."""


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """A placement group. `strategy` is cluster, spread or partition; `partitions` is the number of partitions.

    `instances` counts the instances that EC2 last showed in it, by zone. `spread_over` is rack or host.
    """

    id: str
    name: str
    strategy: str
    partitions: int = 0
    instances: tuple[tuple[str, int], ...] = ()
    spread_over: str = "rack"

    @property
    def is_limited(self) -> bool:
        """Return whether EC2 limits the number of its instances in a zone."""
        return self.strategy == SPREAD and self.spread_over == "rack"

    @property
    def only_zone(self) -> str:
        """The only zone that new instances may be launched in; empty if any will do."""
        return self.instances[0][0] if self.strategy == CLUSTER and self.instances else ""


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """A status condition of a Kubernetes object. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it only waits for other conditions."""
        return self.reason == DEPENDENCIES_NOT_READY


NO_PAST = FrozenMap[FrozenMap[str]]()
"""No digests of past fields."""


@dataclass(frozen=True, slots=True)
class NodeClassStatus:
    """The resolved state of an EC2NodeClass. `images` are ordered: an instance type uses the first one that fits.

    `generation` and `hash` identify the spec that was resolved, and `content` is the content hash of the object in the
    API server at that time. Nothing is launched from an EC2NodeClass with other content.
    """

    name: str
    generation: int
    hash: str
    resolved_at: datetime
    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    images: tuple[Image, ...] = ()
    instance_profile: str = ""
    conditions: tuple[StatusCondition, ...] = ()
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    content: str = ""
    placement_group: PlacementGroup | None = None
    past: FrozenMap[FrozenMap[str]] = NO_PAST
    """Hash as NodeClaims have it → digests of what it covers, see `EC2NodeClass.digests_in`."""

    @property
    def is_ready(self) -> bool:
        """True if there are conditions and all of them hold."""
        return bool(self.conditions) and all(c.status == "True" for c in self.conditions)

    def says_the_same_as(self, other: NodeClassStatus | None) -> bool:
        """Return whether two resolutions are equal except for their times and the numbers of free addresses."""
        return other is not None and _lasting(self) == _lasting(other)

    @property
    def first_obstacle(self) -> StatusCondition | None:
        """The first condition that does not hold, None if all hold."""
        return next((c for c in self.conditions if c.status != "True"), None)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What a new node needs to join the cluster. `ca_bundle` is in base64. `ip_family` is ipv4 or ipv6."""

    name: str
    endpoint: str
    ca_bundle: str
    service_cidr: str
    version: str
    ip_family: str = "ipv4"
    dns_ip: str = ""


def _lasting(status: NodeClassStatus) -> NodeClassStatus:
    conditions = tuple(replace(condition, since=None) for condition in status.conditions)
    subnets = tuple(replace(subnet, free_ips=0) for subnet in status.subnets)
    group = replace(status.placement_group, instances=()) if status.placement_group else None
    return replace(
        status,
        conditions=conditions,
        subnets=subnets,
        placement_group=group,
        resolved_at=_NEVER,
        past=NO_PAST,
    )


class Unresolved(Exception):
    """An error that becomes a condition of the NodeClass.

    `reason` is a single word. `message` describes what was found and how to fix it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


Item = dict[str, Any]


def nodeclass_item(status: NodeClassStatus) -> Item:
    """Write what an EC2NodeClass resolved to."""
    return {
        "name": status.name,
        "generation": status.generation,
        "hash": status.hash,
        "content": status.content,
        "resolved_at": status.resolved_at.isoformat(),
        "subnets": [[s.id, s.zone, s.zone_id, s.free_ips] for s in status.subnets],
        "security_groups": [[g.id, g.name] for g in status.security_groups],
        "images": [[i.id, i.name, write_requirements(i.requirements), i.deprecated] for i in status.images],
        "instance_profile": status.instance_profile,
        "conditions": [
            [c.type, c.status, c.reason, c.message, c.since.isoformat() if c.since else ""]
            for c in status.conditions
        ],
        "capacity_reservations": [
            _reservation_item(reservation) for reservation in status.capacity_reservations
        ],
        **({"placement_group": _group_item(status.placement_group)} if status.placement_group else {}),
        **({"past": {each: dict(digests) for each, digests in status.past.items()}} if status.past else {}),
    }


def read_nodeclass(item: Mapping[str, Any]) -> NodeClassStatus:
    """Read what `nodeclass_item` wrote."""
    return NodeClassStatus(
        name=item["name"],
        generation=int(item["generation"]),
        hash=item["hash"],
        content=item.get("content", ""),
        resolved_at=datetime.fromisoformat(item["resolved_at"]),
        subnets=tuple(
            Subnet(id_, zone, zone_id, int(free)) for id_, zone, zone_id, free, *_ in item["subnets"]
        ),
        security_groups=tuple(SecurityGroup(id_, name) for id_, name, *_ in item["security_groups"]),
        images=tuple(
            Image(id_, name, read_requirements(requirements), deprecated)
            for id_, name, requirements, deprecated, *_ in item["images"]
        ),
        instance_profile=item["instance_profile"],
        conditions=tuple(
            StatusCondition(type_, status, reason, message, datetime.fromisoformat(since) if since else None)
            for type_, status, reason, message, since, *_ in item["conditions"]
        ),
        capacity_reservations=tuple(map(_read_reservation, item.get("capacity_reservations", ()))),
        placement_group=_read_group(item["placement_group"]) if item.get("placement_group") else None,
        past=FrozenMap({each: FrozenMap(digests) for each, digests in item.get("past", {}).items()}),
    )


def _group_item(group: PlacementGroup) -> Item:
    return {
        "id": group.id,
        "name": group.name,
        "strategy": group.strategy,
        "partitions": group.partitions,
        "instances": [list(pair) for pair in group.instances],
        "spread_over": group.spread_over,
    }


def _read_group(item: Mapping[str, Any]) -> PlacementGroup:
    return PlacementGroup(
        item["id"],
        item["name"],
        item["strategy"],
        int(item["partitions"]),
        tuple((zone, int(count)) for zone, count, *_ in item["instances"]),
        item["spread_over"],
    )


def _reservation_item(reservation: CapacityReservation) -> Item:
    written = {field.name: getattr(reservation, field.name) for field in fields(CapacityReservation)}
    return {**written, "ends_at": reservation.ends_at.isoformat() if reservation.ends_at else ""}


def _read_reservation(item: Mapping[str, Any]) -> CapacityReservation:
    names = {field.name for field in fields(CapacityReservation)} & item.keys()
    ends_at = datetime.fromisoformat(item["ends_at"]) if item["ends_at"] else None
    numbers = {"available": int(item["available"]), "ends_at": ends_at}
    return CapacityReservation(**{**{name: item[name] for name in names}, **numbers})
