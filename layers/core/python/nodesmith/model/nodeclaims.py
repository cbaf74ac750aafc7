"""NodeClaim: what nodesmith knows of one node that it bought or is about to buy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodesmith.model.frozen import NO_ITEMS, FrozenMap, thaw
from nodesmith.model.nodespec import (
    NodeClassRef,
    read_requirements,
    read_taints,
    write_requirements,
    write_taints,
)
from nodesmith.model.requirements import NO_REQUIREMENTS, Requirements
from nodesmith.model.resources import NOTHING, Resources
from nodesmith.model.taints import Taint


class Phase(StrEnum):
    """Where a claim stands. It only ever moves down this list, and GivenUp ends it from anywhere."""

    PENDING = "Pending"
    """The intent to buy is committed; an instance may or may not exist."""
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    GIVEN_UP = "GivenUp"


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """One claim as the ledger holds it. Times are aware; `launch` is JSON data of the effects' own."""

    name: str
    nodepool: str
    nodeclass: NodeClassRef
    created_at: datetime
    phase: Phase
    phase_since: datetime
    nodepool_uid: str = ""
    nodepool_hash: str = ""
    nodeclass_hash: str = ""
    requirements: Requirements = NO_REQUIREMENTS
    labels: Mapping[str, str] = NO_ITEMS
    annotations: Mapping[str, str] = NO_ITEMS
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    requests: Resources = NOTHING
    expire_after: str | None = None
    termination_grace_period: str | None = None
    launch: Mapping[str, object] = FrozenMap()
    instance_id: str = ""
    provider_id: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    image_id: str = ""
    price_hourly_usd: float = 0.0
    node_name: str = ""
    capacity: Resources = NOTHING
    allocatable: Resources = NOTHING
    nominated: tuple[str, ...] = ()
    """namespace/name of the pods that this claim was bought for."""
    launched_at: datetime | None = None
    registered_at: datetime | None = None
    initialized_at: datetime | None = None
    reason: str = ""
    """Why it does not advance or was given up, in one CamelCase word; `message` says it in a sentence."""
    message: str = ""
    decision: str = ""
    """Id of the decision that asked for it."""
    revision: int = 0
    """Counts writes to the ledger: the optimistic lock."""

    def given_up(self, reason: str, message: str, now: datetime) -> NodeClaim:
        """Give the claim as it ends: EC2 is not asked for it again."""
        return replace(
            self,
            phase=Phase.GIVEN_UP,
            phase_since=now,
            reason=reason,
            message=message,
            launch=FrozenMap(),
        )


def to_item(claim: NodeClaim) -> dict[str, Any]:
    """Write a claim as JSON-able data, the same for equal claims; what is empty or unset is left out."""
    values = ((field.name, getattr(claim, field.name)) for field in fields(claim))
    return {name: _write(name, value) for name, value in values if value not in (None, "", ())}


def from_item(item: Mapping[str, Any]) -> NodeClaim:
    """Read what `to_item` wrote; names that this version does not know are left out."""
    known = {field.name for field in fields(NodeClaim)} & item.keys()
    return NodeClaim(
        **{name: _READERS[name](item[name]) if name in _READERS else item[name] for name in known}
    )


def _write(name: str, value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case Requirements():
            return write_requirements(value)
        case NodeClassRef():
            return {"group": value.group, "kind": value.kind, "name": value.name}
        case tuple() if name in ("taints", "startup_taints"):
            return write_taints(value)
        case _:
            return thaw(value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "nodeclass": lambda value: NodeClassRef(**value),
    "phase": Phase,
    "requirements": read_requirements,
    "nominated": tuple,
    **dict.fromkeys(("taints", "startup_taints"), read_taints),
    **dict.fromkeys(("requests", "capacity", "allocatable"), Resources),
    **dict.fromkeys(("labels", "annotations", "launch"), FrozenMap),
    **dict.fromkeys(
        ("created_at", "phase_since", "launched_at", "registered_at", "initialized_at"),
        datetime.fromisoformat,
    ),
}
