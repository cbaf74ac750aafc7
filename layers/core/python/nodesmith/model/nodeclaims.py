"""NodeClaim: what nodesmith knows of one node that it bought or is about to buy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nodesmith.model.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.nodepools import NodeClassRef
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
