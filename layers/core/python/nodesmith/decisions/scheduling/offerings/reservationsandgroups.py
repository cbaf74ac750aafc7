"""Limits other than a NodePool's own: capacity reservations, placement groups, and what quotas and commitments leave.

An EC2NodeClass says what may be launched in reservations and groups. The capacity of a reservation is paid for anyway.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    TypeSet,
    allows_offering,
    offering_labels,
)
from nodesmith.decisions.scheduling.existing import zone_of
from nodesmith.model.apimachinery.labels import (
    AWS_DOMAIN,
    ON_DEMAND,
    PARTITION,
    PLACEMENT_GROUP,
    RESERVATION_ID,
    RESERVED,
)
from nodesmith.model.apimachinery.quantities import NODES, Resources
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodeclasses.status import (
    CLUSTER,
    MOST_SPREAD,
    CapacityReservation,
    NodeClassStatus,
    PlacementGroup,
)
from nodesmith.model.policies import LAUNCHES_PER_HOUR, USD_PER_HOUR, USD_PER_MONTH, micro_usd

_RESERVATION_TYPE = f"{AWS_DOMAIN}/capacity-reservation-type"
_INTERRUPTIBLE = f"{AWS_DOMAIN}/capacity-reservation-interruptible"
_RESERVATION_LIMIT = "reservation/"
_OFFERING_KEYS = OFFERING_KEYS | {RESERVATION_ID, _RESERVATION_TYPE, _INTERRUPTIBLE}


def free_reservations(
    status: NodeClassStatus, claims: Iterable[NodeClaim]
) -> tuple[CapacityReservation, ...]:
    """Return the reservations that can take an instance now.

    Instances launched since the reservations were last read, or that may still be, count as taken.
    """
    in_use: dict[str, int] = {}
    for claim in claims:
        reservation = claim.labels.get(RESERVATION_ID)
        if reservation and claim.phase is not Phase.GIVEN_UP and _is_newer(claim, status):
            in_use[reservation] = in_use.get(reservation, 0) + 1
    reservations = (
        replace(r, available=r.available - in_use.get(r.id, 0)) for r in status.capacity_reservations
    )
    return tuple(r for r in reservations if r.available > 0 and not r.expiring)


def _is_newer(claim: NodeClaim, status: NodeClassStatus) -> bool:
    """Return whether a claim's instance was launched since a status was read, or may still be."""
    return claim.phase is Phase.PENDING or (claim.launched_at or claim.created_at) >= status.resolved_at


def reserved_offerings(
    reservations: Iterable[CapacityReservation],
    types: Mapping[str, InstanceType],
    requirements: Requirements,
    zones: Collection[str],
    closed: Collection[OfferingKey],
) -> dict[str, tuple[Offering, ...]]:
    """Return the usable reserved offerings by instance type, each priced at its on-demand price.

    The price only compares reservations with one another: the most expensive are best used for the pods that would cost
    most elsewhere.
    """
    by_type: dict[str, tuple[Offering, ...]] = {}
    allowed = {key: requirements[key] for key in _OFFERING_KEYS if key in requirements}
    for reservation in reservations:
        kind, zone = types.get(reservation.instance_type), reservation.zone
        if kind is None or zone not in zones or OfferingKey(RESERVED, kind.name, zone) in closed:
            continue
        labels = reservation_labels(reservation)
        on_demand = [o for o in kind.offerings if o.capacity_type == ON_DEMAND]
        in_zone = next((o for o in on_demand if o.zone == zone), None)
        price = (
            in_zone.price_hourly_usd if in_zone else min((o.price_hourly_usd for o in on_demand), default=0.0)
        )
        offering = Offering(
            zone, RESERVED, price, zone_id=in_zone.zone_id if in_zone else "", reservation=reservation.id
        )
        if allows_offering(allowed, offering) and all(
            allowed[key].allows(value) for key, value in labels.items() if key in allowed
        ):
            by_type[kind.name] = (*by_type.get(kind.name, ()), offering)
    return by_type


def reservation_labels(reservation: CapacityReservation) -> dict[str, str]:
    """Return the labels of nodes that run in a reservation."""
    return {
        RESERVATION_ID: reservation.id,
        _RESERVATION_TYPE: reservation.kind,
        _INTERRUPTIBLE: str(reservation.interruptible).lower(),
    }


def reservation_limit(reservation: str) -> str:
    """Return the name under which a reservation's free instances are a limit, next to the limits of the NodePool."""
    return f"{_RESERVATION_LIMIT}{reservation}"


def used_up(offerings: Iterable[Offering], available: Mapping[str, int]) -> tuple[str, str, str] | None:
    """Return why reserved capacity leaves none of these offerings, what is in the way, and what helps.

    None if one of them is not reserved, or something is left; `available` is what limits leave, by name.
    """
    names = sorted({offering.reservation for offering in offerings})
    if not all(names) or any(available.get(reservation_limit(name), 0) > 0 for name in names):
        return None
    message = f"all instances of {' and '.join(names[:_MOST_NAMED])} are in use, and only reserved capacity is suitable"
    return (
        message,
        "capacity reservations",
        "enlarge the capacity reservation, or allow on-demand or spot capacity",
    )


_MOST_NAMED = 3
_GROUP_LIMIT = "placement-group/"
_NOT_IN_CLUSTERS = re.compile(r"(?:t\d\w*|mac[\w-]*|vt1|[cm]1|m[23]|\w+-flex)\.")


@lru_cache(maxsize=64)
def group_requirements(group: PlacementGroup | None) -> Requirements:
    """Return what nodes of a group have in common: its id, and for a partition group the numbers of its partitions."""
    if group is None:
        return NO_REQUIREMENTS
    requirements = {PLACEMENT_GROUP: Requirement(PLACEMENT_GROUP, frozenset({group.id}))}
    if group.partitions:
        numbers = frozenset(str(number + 1) for number in range(group.partitions))
        requirements[PARTITION] = Requirement(PARTITION, numbers)
    return Requirements(requirements)


@lru_cache(maxsize=16)
def types_of_group(types: TypeSet, strategy: str) -> TypeSet:
    """Return the types that EC2 launches into groups with this strategy."""
    supported = tuple(t for t in types.types if supports(t.name, strategy))
    return types if len(supported) == len(types.types) else TypeSet(supported)


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
    own_counts = Counter(map(zone_of, mine))
    coming = Counter(zone_of(claim) for claim in mine if _is_newer(claim, status))
    shown_counts = dict(group.instances)
    zones = sorted({subnet.zone for subnet in status.subnets})
    instances = {zone: max(shown_counts.get(zone, 0) + coming[zone], own_counts[zone]) for zone in zones}
    return {zone: max(0, MOST_SPREAD - instances[zone]) for zone in zones}


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
    zones_of_claims = sorted(zone_of(claim) for claim in claims if _is_in(claim, group))
    only_zone = group.only_zone or next(filter(None, zones_of_claims), "")
    by_room = sorted(status.subnets, key=lambda subnet: (-subnet.free_ips, subnet.zone))
    zones = [only_zone] if only_zone else dict.fromkeys(subnet.zone for subnet in by_room)
    return [frozenset({zone}) for zone in zones] or (None,)


def _is_in(claim: NodeClaim, group: PlacementGroup) -> bool:
    return claim.labels.get(PLACEMENT_GROUP) == group.id and claim.phase is not Phase.GIVEN_UP


def group_limit(zone: str) -> str:
    """Return the name under which a zone's room in the group is a limit, next to the limits of the NodePool."""
    return f"{_GROUP_LIMIT}{zone}"


def limited_zone(name: str) -> str:
    """Return the zone whose room in a group this limit is; empty for other limits."""
    return name.removeprefix(_GROUP_LIMIT) if name.startswith(_GROUP_LIMIT) else ""


def own_limits(remaining: Resources) -> Resources:
    """Return what is left of a NodePool's own limits, without those of zones and those that it shares."""
    return Resources({n: remaining[n] for n in remaining if not (limited_zone(n) or shared_limit(n))})


def is_of_users(name: str) -> bool:
    """Return whether a limit is one that users set: of a NodePool, or a quota. EC2 has the others."""
    shared = shared_limit(name)
    if shared is not None:
        return not shared.is_of_commitments
    return not name.startswith((_RESERVATION_LIMIT, _GROUP_LIMIT))


_QUOTA = "quota:"
_COMMITMENT = "commitment"


def described_group(group: PlacementGroup | None) -> str:
    """Return what a placement group is called in messages."""
    return f"placement group {group.name}" if group else "the placement group"


def is_group_full(remaining: Mapping[str, int]) -> bool:
    """Return whether a placement group takes no more instances in any zone, given what is left of limits."""
    room = [amount for name, amount in remaining.items() if limited_zone(name)]
    return bool(room) and not any(room)


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """What is left of a quota for one resource, or of commitments, as a limit that several NodePools share.

    It applies to offers whose own labels, those of the type and of the offering, meet `rest`. That of commitments
    applies to the offers which they pay for.
    """

    owner: str
    resource: str
    rest: Requirements = NO_REQUIREMENTS

    @property
    def name(self) -> str:
        """The name among the limits of a NodePool, from which `shared_limit` reads all of this."""
        requirements = [_written(self.rest[key]) for key in sorted(self.rest)]
        return _QUOTA + json.dumps([self.owner, self.resource, requirements])

    @classmethod
    def of_commitments(cls, pool: str) -> SharedLimit:
        """Return the limit for what is left of a pool of commitments."""
        return cls(pool, _COMMITMENT)

    @property
    def is_of_commitments(self) -> bool:
        """Whether it is what is left of commitments: it never stops a purchase, only what that costs."""
        return self.resource == _COMMITMENT

    @property
    def key(self) -> tuple[str, str]:
        """What limits with different `rest` have in common if they share one amount."""
        return self.owner, self.resource

    def cost(self, instance_type: InstanceType, offering: Offering | None) -> int:
        """Return what one node takes of it; without an offering, the least that it may take."""
        if self.is_of_commitments:
            return offering.commitment_use if offering and offering.commitment == self.owner else 0
        if offering is None:
            offers = instance_type.offerings
            return min((self.cost(instance_type, candidate) for candidate in offers), default=0)
        if self.rest and not self.rest.allow_labels(_labels(instance_type, offering)):
            return 0
        if self.resource in (NODES, LAUNCHES_PER_HOUR):
            return 1
        if self.resource in (USD_PER_HOUR, USD_PER_MONTH):
            return 0 if offering.reservation else micro_usd(offering.paid_hourly_usd)
        return instance_type.capacity.of(self.resource)


def _written(part: Requirement) -> list[object]:
    return [part.key, sorted(part.values), part.complement, part.exists]


def _labels(instance_type: InstanceType, offering: Offering) -> dict[str, str]:
    reserved = {RESERVATION_ID: offering.reservation} if offering.reservation else {}
    return {
        **instance_type.labels,
        **offering_labels(offering.zone, offering.zone_id, offering.capacity_type),
        **reserved,
    }


def shared_limit(name: str) -> SharedLimit | None:
    """Return the shared limit that has this name; None for any other limit."""
    return _shared_limit(name) if name.startswith(_QUOTA) else None


def shared_key(name: str, group: PlacementGroup | None) -> tuple[str, str] | None:
    """Return what the limits of several templates have in common if they share one amount; None for any other limit.

    They share quotas, commitments, capacity reservations, and the room of a placement group, theirs if in a `group`.
    """
    if name.startswith(_RESERVATION_LIMIT):
        return _RESERVATION_LIMIT, name
    if name.startswith(_GROUP_LIMIT) and group is not None:
        return _GROUP_LIMIT + group.id, name
    shared = shared_limit(name)
    return None if shared is None else shared.key


@lru_cache(maxsize=1024)
def _shared_limit(name: str) -> SharedLimit:
    owner, resource, requirements = json.loads(name.removeprefix(_QUOTA))
    parts = (
        Requirement(key, frozenset(values), complement=c, exists=e) for key, values, c, e in requirements
    )
    return SharedLimit(owner, resource, Requirements.of(*parts))
