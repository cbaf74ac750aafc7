"""Launches: the request to EC2 for one NodeClaim, and its possible outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class OfferingKey:
    """One pool of EC2 capacity: a capacity type, an instance type, a zone, and the placement group if there is one."""

    capacity_type: str
    instance_type: str
    zone: str
    group: str = ""

    def __str__(self) -> str:
        within = f" in placement group {self.group}" if self.group else ""
        return f"{self.capacity_type} {self.instance_type} in {self.zone}{within}"


NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
"""EC2's code where the account lacks the service-linked role for Spot: it concerns every spot offering."""
VCPU_QUOTAS = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})
"""EC2's codes where the account's quota of vCPUs, on demand or of Spot, does not allow an instance."""


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """A launch template, named after the hash of its content, so that equal content shares one template.

    `data` is EC2's LaunchTemplateData. `tags` are the tags of the template itself.
    """

    name: str
    data: Mapping[str, Any] = field(hash=False)
    tags: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Override:
    """One override of a CreateFleet request: a launch template, an instance type and a subnet."""

    template: str
    instance_type: str
    zone: str
    subnet_id: str
    price_hourly_usd: float
    estimated: bool = field(default=False, compare=False)
    """True if the price is an estimate and not from AWS; not stored"""
    overlay: str = ""
    """the NodeOverlay that sets its price, and `listed_hourly_usd` is AWS's"""
    listed_hourly_usd: float = 0.0
    commitment: str = ""
    """the pool of commitments that is expected to pay for it; `listed_hourly_usd` is its price without"""

    @property
    def paid_hourly_usd(self) -> float:
        """What AWS charges for it without commitments, whatever a NodeOverlay says."""
        return self.listed_hourly_usd if self.overlay or self.commitment else self.price_hourly_usd


@dataclass(frozen=True, slots=True)
class FleetShare:
    """A claim's share of one CreateFleet call that serves several claims with equal requests.

    `fleet` is the value of the tag that all instances of the call carry. The claim's instance is the one at `index` in
    the order of their ids. `size` is the target capacity: the number of claims.
    """

    fleet: str
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All parameters of CreateFleet for one claim. It is stored with the intent, so that a retry is identical.

    `tags` go on the instance, its volumes and the fleet. `overrides` are ordered by cost, including risk. If the
    request has a `share`, the tags that only this claim has are added once its instance is known.
    """

    claim: str
    capacity_type: str
    overrides: tuple[Override, ...]
    tags: Mapping[str, str]
    reservations: str = ""
    """the kind of reservation if the capacity type is reserved: default, capacity-block or interruptible"""
    share: FleetShare | None = None
    group: str = ""
    """the placement group that instances are launched into, if any"""
    context: str = ""
    """CreateFleet's `Context`, from the EC2NodeClass; empty for none"""

    @property
    def cheapest(self) -> Override:
        """The first override with the lowest price, and of those the lowest price of AWS."""
        return min(self.overrides, key=lambda override: (override.price_hourly_usd, override.paid_hourly_usd))

    @property
    def price_hourly_usd(self) -> float:
        """The price of its cheapest override, in USD per hour; 0 for a reservation, which is paid for anyway."""
        return 0.0 if self.reservations else self.cheapest.price_hourly_usd

    @property
    def paid_hourly_usd(self) -> float:
        """What AWS charges for its cheapest override; 0 for a reservation."""
        return 0.0 if self.reservations else self.cheapest.paid_hourly_usd

    @property
    def is_overlaid(self) -> bool:
        """Whether NodeOverlays have set prices, so that EC2 must choose by these and not by its own."""
        return any(override.overlay for override in self.overrides)

    @property
    def most_hourly_usd(self) -> float:
        """What AWS charges for its dearest override, in USD per hour; 0 for a reservation."""
        return 0.0 if self.reservations else max(override.paid_hourly_usd for override in self.overrides)

    @property
    def call(self) -> str:
        """A name for the CreateFleet call that serves it: that of its shared fleet, or its claim's name."""
        return f"fleet/{self.share.fleet}" if self.share else self.claim

    def to_item(self) -> dict[str, Any]:
        """Write the request as JSON data."""
        return {
            "capacityType": self.capacity_type,
            **({"reservations": self.reservations} if self.reservations else {}),
            "overrides": [_row(override) for override in self.overrides],
            "tags": dict(self.tags),
            **({"group": self.group} if self.group else {}),
            **({"fleet": [self.share.fleet, self.share.index, self.share.size]} if self.share else {}),
            **({"context": self.context} if self.context else {}),
        }

    @classmethod
    def from_item(cls, claim: str, item: Mapping[str, Any]) -> LaunchRequest:
        """Read what `to_item` wrote. Additions of later versions are ignored."""
        return cls(
            claim,
            item["capacityType"],
            tuple(map(_override, item["overrides"])),
            dict(item["tags"]),
            item.get("reservations", ""),
            share_of(item),
            item.get("group", ""),
            item.get("context", ""),
        )

    def offerings(self) -> tuple[OfferingKey, ...]:
        """Return the pools of capacity that may serve the request."""
        return tuple(self.pool(o) for o in self.overrides)

    def pool(self, override: Override) -> OfferingKey:
        """Return the pool of capacity of one override."""
        return OfferingKey(self.capacity_type, override.instance_type, override.zone, self.group)


_LONGEST_OVERLAY = 63
"""The most characters of a NodeOverlay's name in a ledger item, since a transaction has 90 claims of 60 overrides."""


def _row(override: Override) -> list[Any]:
    row: list[Any] = [override.template, override.instance_type, override.zone, override.subnet_id]
    row.append(override.price_hourly_usd)
    if override.overlay or override.commitment:
        row += [override.overlay[:_LONGEST_OVERLAY], override.listed_hourly_usd]
    return [*row, override.commitment] if override.commitment else row


def _override(row: Sequence[Any]) -> Override:
    template, kind, zone, subnet, price, *rest = row
    overlay, listed = rest[:2] if len(rest) >= 2 else ("", 0.0)
    commitment = str(rest[2]) if len(rest) >= 3 else ""
    about: dict[str, Any] = {"overlay": str(overlay), "commitment": commitment}
    return Override(template, kind, zone, subnet, float(price), listed_hourly_usd=float(listed), **about)


def share_of(launch: Mapping[str, Any]) -> FleetShare | None:
    """Return the fleet share of a request in the format of `LaunchRequest.to_item`, None if it has none."""
    share = launch.get("fleet")
    return FleetShare(*share[:3]) if share else None


def fleet_of(launch: Mapping[str, Any]) -> str:
    """Return the shared fleet of a request in the format of `LaunchRequest.to_item`, empty if it has none."""
    share = share_of(launch)
    return share.fleet if share else ""


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance that nodesmith launched. `state` is EC2's term (pending, running, …).

    `claim` is empty while an instance of a shared fleet does not have its claim's tag; `fleet` names that fleet.
    `template_id`, `instance_profile` (its name), `private_dns_name` and `security_groups` (ids, of its primary network
    interface) come from DescribeInstances and are not in the response to a launch.
    """

    id: str
    claim: str
    instance_type: str
    zone: str
    capacity_type: str
    image_id: str
    state: str
    launched_at: datetime
    subnet_id: str = ""
    state_reason: str = field(default="", compare=False)
    """Why the instance does not run, in EC2's words, such as `Client.InternalError: Client error on launch`."""
    state_since: datetime | None = field(default=None, compare=False)
    """When it was last stopped or terminated, by whomever; None if EC2 does not say."""
    template_id: str = field(default="", compare=False)
    instance_profile: str = field(default="", compare=False)
    private_dns_name: str = field(default="", compare=False)
    """The name under which EKS lets its kubelet join, such as `ip-10-0-0-4.ec2.internal` or `i-0123….ec2.internal`."""
    fleet: str = field(default="", compare=False)
    security_groups: tuple[str, ...] = field(default=(), compare=False)

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"

    @property
    def is_alive(self) -> bool:
        return self.state in {"pending", "running", "stopping", "stopped"}


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A pool that had no capacity. `code` is EC2's error code."""

    offering: OfferingKey
    code: str


@dataclass(frozen=True, slots=True)
class SubnetShortfall:
    """A subnet in which nothing can be launched, whatever the instance type. `code` is EC2's error code."""

    subnet: str
    code: str


@dataclass(frozen=True, slots=True)
class Launched:
    """The instance exists. `shortfalls` and `subnets` are the pools and subnets that failed before."""

    claim: str
    instance: Instance
    shortfalls: tuple[Shortfall, ...] = ()
    subnets: tuple[SubnetShortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class StartRefusal:
    """Why EC2 did not start a stopped instance.

    `is_short` is True if its capacity pool has no instance left, `passes` if the same call may succeed in a moment. In
    that case it is not known whether the instance starts.
    """

    code: str
    message: str
    is_short: bool = False
    passes: bool = False


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """No requested pool had capacity. Each pool that was tried is in `shortfalls`, or its subnet is in `subnets`.

    `quota` is True if the cause was a limit of the account, which the `code`s of the shortfalls name, and not EC2's
    capacity.
    """

    claim: str
    shortfalls: tuple[Shortfall, ...]
    quota: bool = False
    subnets: tuple[SubnetShortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The request is wrong and will stay wrong until the NodeClass, the role or the account is fixed.

    If EC2 denied each offering by itself, these are `denied`: a policy may permit other instance types.
    """

    claim: str
    reason: str
    message: str
    denied: tuple[Shortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class Deferred:
    """The outcome is unknown: throttling, a timeout or a 5xx. The claim stays, and the request is repeated later."""

    claim: str
    reason: str
    message: str
    nothing_begun: bool = field(default=False, compare=False)
    """True if EC2 refused the request, so that no instance can still appear and no wait for one is needed"""


@dataclass(frozen=True, slots=True)
class Unfulfilled:
    """EC2 answered without an instance for this claim, for a temporary reason that no pool is to blame for.

    The call succeeded, so its client token would return the same answer again. The claim ends, and a new decision is
    made about its pods.
    """

    claim: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TemplateMissing:
    """One of the request's launch templates does not exist. The templates are created and the request is repeated.

    If `is_answered` is True, the call itself succeeded and its client token is used up, so the claim ends.
    """

    claim: str
    is_answered: bool = False


LaunchOutcome: TypeAlias = Launched | NoCapacity | Refused | Deferred | Unfulfilled | TemplateMissing
