"""What an EC2NodeClass resolved to: the ids behind its selectors, and whether nodes may be launched from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet that new nodes may use; `free_ips` as EC2 last told."""

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
    """A machine image and what an instance type must have to boot it (architecture, accelerators)."""

    id: str
    name: str = ""
    requirements: Requirements = NO_REQUIREMENTS
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class CapacityReservation:
    """Capacity that is paid for whether it is used or not; `available` instances of it were free when last asked.

    `kind` is default or capacity-block, `match_criteria` open or targeted; an `expiring` one takes no new instances.
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


@dataclass(frozen=True, slots=True)
class StatusCondition:
    """A status condition as Kubernetes objects show it. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeClassStatus:
    """The resolved half of an EC2NodeClass. `images` are ordered: the first that fits a type is used.

    `generation` and `hash` say which spec was resolved, `content` what the API server had then: nothing is launched
    from an EC2NodeClass of other content.
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

    @property
    def is_ready(self) -> bool:
        """True when every condition holds."""
        return bool(self.conditions) and all(c.status == "True" for c in self.conditions)

    def says_the_same_as(self, other: NodeClassStatus | None) -> bool:
        """Return whether two resolutions differ in nothing but when they were made and how many addresses were free."""
        return other is not None and _lasting(self) == _lasting(other)

    @property
    def first_obstacle(self) -> StatusCondition | None:
        """The first condition that does not hold."""
        return next((c for c in self.conditions if c.status != "True"), None)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What a new node must know to join. `ca_bundle` is base64; `ip_family` ipv4 or ipv6."""

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
    return replace(status, conditions=conditions, subnets=subnets, resolved_at=_NEVER)
