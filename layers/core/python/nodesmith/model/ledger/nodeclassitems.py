"""The resolved status of an EC2NodeClass as JSON data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from nodesmith.model.karpenter.nodeclaims import (
    read_requirements,
    write_requirements,
)
from nodesmith.model.nodeclasses.status import (
    CapacityReservation,
    Image,
    NodeClassStatus,
    PlacementGroup,
    SecurityGroup,
    StatusCondition,
    Subnet,
)

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
        "capacity_reservations": [_reservation_item(each) for each in status.capacity_reservations],
        **({"placement_group": _group_item(status.placement_group)} if status.placement_group else {}),
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
    )


def _group_item(group: PlacementGroup) -> Item:
    return {
        "id": group.id,
        "name": group.name,
        "strategy": group.strategy,
        "partitions": group.partitions,
        "instances": [list(each) for each in group.instances],
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
    known = {field.name for field in fields(CapacityReservation)} & item.keys()
    ends_at = datetime.fromisoformat(item["ends_at"]) if item["ends_at"] else None
    numbers = {"available": int(item["available"]), "ends_at": ends_at}
    return CapacityReservation(**{**{name: item[name] for name in known}, **numbers})
