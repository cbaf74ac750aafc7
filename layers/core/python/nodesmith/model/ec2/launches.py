"""Launches: what EC2 is asked for one NodeClaim, and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class OfferingKey:
    """One pool of EC2 capacity: `capacity_type`, `instance_type`, `zone`."""

    capacity_type: str
    instance_type: str
    zone: str

    def __str__(self) -> str:
        return f"{self.capacity_type} {self.instance_type} in {self.zone}"


@dataclass(frozen=True, slots=True)
class LaunchTemplate:
    """A launch template named after the hash of its content, so that equal content is one template.

    `data` is EC2's LaunchTemplateData, `tags` those of the template itself.
    """

    name: str
    data: Mapping[str, Any] = field(hash=False)
    tags: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Override:
    """One row of a CreateFleet request: this template, on this type, in this subnet."""

    template: str
    instance_type: str
    zone: str
    subnet_id: str
    price_hourly_usd: float
    estimated: bool = field(default=False, compare=False)
    """the price is a stand-in, not one that AWS has told; not written down"""


@dataclass(frozen=True, slots=True)
class FleetShare:
    """A claim's share of one CreateFleet call that serves several claims with equal requests.

    `fleet` is the value of the tag that all its instances carry. Of those, in the order of their ids, the one numbered
    `index` is the claim's. `size` is the target capacity: the number of claims.
    """

    fleet: str
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything CreateFleet is told for one claim: written down with the intent, so a retry asks the very same.

    `tags` go on the instance, its volumes and the fleet. Overrides are ordered by what they cost, risks included.
    Where it has a `share`, tags that only this claim has are written once its instance is known.
    """

    claim: str
    capacity_type: str
    overrides: tuple[Override, ...]
    tags: Mapping[str, str]
    reservations: str = ""
    """where the capacity type is reserved, which kind: default, capacity-block or interruptible"""
    share: FleetShare | None = None

    @property
    def cheapest(self) -> Override:
        """The offering of the lowest price, of those alike the first."""
        return min(self.overrides, key=lambda override: override.price_hourly_usd)

    @property
    def price_hourly_usd(self) -> float:
        """What it costs at its cheapest offering, USD an hour; a reservation is paid for anyway."""
        return 0.0 if self.reservations else self.cheapest.price_hourly_usd

    @property
    def call(self) -> str:
        """A name of the CreateFleet call that serves it: that of its fleet, or its claim's where it has one alone."""
        return f"fleet/{self.share.fleet}" if self.share else self.claim

    def to_item(self) -> dict[str, Any]:
        """Write as JSON-able data."""
        return {
            "capacityType": self.capacity_type,
            **({"reservations": self.reservations} if self.reservations else {}),
            "overrides": [
                [o.template, o.instance_type, o.zone, o.subnet_id, o.price_hourly_usd] for o in self.overrides
            ],
            "tags": dict(self.tags),
            **({"fleet": [self.share.fleet, self.share.index, self.share.size]} if self.share else {}),
        }

    @classmethod
    def from_item(cls, claim: str, item: Mapping[str, Any]) -> LaunchRequest:
        """Read what `to_item` wrote; what a later version has added is left out."""
        return cls(
            claim,
            item["capacityType"],
            tuple(Override(t, i, z, s, float(p)) for t, i, z, s, p, *_ in item["overrides"]),
            dict(item["tags"]),
            item.get("reservations", ""),
            share_of(item),
        )

    def offerings(self) -> tuple[OfferingKey, ...]:
        """The pools of capacity it may be served from."""
        return tuple(OfferingKey(self.capacity_type, o.instance_type, o.zone) for o in self.overrides)


def share_of(launch: Mapping[str, Any]) -> FleetShare | None:
    """Return the share of a fleet that a request has which `LaunchRequest.to_item` wrote, None where it has none."""
    share = launch.get("fleet")
    return FleetShare(*share[:3]) if share else None


def fleet_of(launch: Mapping[str, Any]) -> str:
    """Return the shared fleet of such a request, empty where it has none."""
    share = share_of(launch)
    return share.fleet if share else ""


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance of ours. `state` is EC2's word (pending, running, …).

    `claim` is empty as long as an instance of a shared fleet does not carry its claim's tag; `fleet` names that fleet.
    `template_id`, `instance_profile` (its name), `private_dns_name` and `security_groups` (ids, of its primary network
    interface) are told by descriptions, not by the answer to a launch.
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
    """Why it does not run, in EC2's words, as `Client.InternalError: Client error on launch`."""
    template_id: str = field(default="", compare=False)
    instance_profile: str = field(default="", compare=False)
    private_dns_name: str = field(default="", compare=False)
    """As `ip-10-0-0-4.ec2.internal` or `i-0123456789abcdef0.ec2.internal`, by which EKS lets its kubelet join."""
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
    """A pool that had no capacity, in EC2's own word (`code`)."""

    offering: OfferingKey
    code: str


@dataclass(frozen=True, slots=True)
class SubnetShortfall:
    """A subnet in which nothing can be launched, whatever the instance type, in EC2's own word (`code`)."""

    subnet: str
    code: str


@dataclass(frozen=True, slots=True)
class Launched:
    """The instance exists. Pools that failed on the way are knowledge too."""

    claim: str
    instance: Instance
    shortfalls: tuple[Shortfall, ...] = ()
    subnets: tuple[SubnetShortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """None of the asked pools had an instance: each that was tried is in `shortfalls`, or its subnet is in `subnets`.

    `quota` is set when it was the account's limit (`code`s of the shortfalls say which), not EC2's stock.
    """

    claim: str
    shortfalls: tuple[Shortfall, ...]
    quota: bool = False
    subnets: tuple[SubnetShortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The request is wrong and will stay wrong until somebody mends the NodeClass, the role or the account."""

    claim: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """Nothing is known: throttled, timed out, a 5xx. The claim stays and the same request is repeated later."""

    claim: str
    reason: str
    message: str
    nothing_begun: bool = field(default=False, compare=False)
    """EC2 has turned the request away: there is no instance that might still turn up, so nobody need wait for one"""


@dataclass(frozen=True, slots=True)
class Unfulfilled:
    """EC2 answered without an instance for this claim, for a reason that passes and that is no fault of a pool.

    The call succeeded, so its client token would give the same answer again: the claim ends, and its pods are decided
    about anew.
    """

    claim: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TemplateMissing:
    """EC2 does not know one of the request's launch templates: make them and ask again.

    Where the call itself was answered, its client token is spent: the claim ends.
    """

    claim: str
    is_answered: bool = False


LaunchOutcome: TypeAlias = Launched | NoCapacity | Refused | Deferred | Unfulfilled | TemplateMissing
