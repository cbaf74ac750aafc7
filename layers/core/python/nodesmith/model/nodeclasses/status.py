"""The resolved state of an EC2NodeClass: the ids that its selectors find, and whether nodes may be launched from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements

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
    def home(self) -> str:
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
    return replace(status, conditions=conditions, subnets=subnets, placement_group=group, resolved_at=_NEVER)


class Unresolved(Exception):
    """An error that becomes a condition of the NodeClass.

    `reason` is a single word. `message` describes what was found and how to fix it.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
