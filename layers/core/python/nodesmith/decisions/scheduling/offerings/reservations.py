"""Capacity reservations as offerings: the capacity a NodePool may use that is paid for anyway."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from nodesmith.decisions.scheduling.compatibility import OFFERING_KEYS, allows_offering
from nodesmith.model.apimachinery.labels import AWS_DOMAIN, ON_DEMAND, RESERVATION_ID, RESERVED
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodeclasses.status import CapacityReservation, NodeClassStatus

_RESERVATION_TYPE = f"{AWS_DOMAIN}/capacity-reservation-type"
_INTERRUPTIBLE = f"{AWS_DOMAIN}/capacity-reservation-interruptible"
_LIMIT = "reservation/"
_OFFERING_KEYS = OFFERING_KEYS | {RESERVATION_ID, _RESERVATION_TYPE, _INTERRUPTIBLE}


def free_reservations(
    status: NodeClassStatus, claims: Iterable[NodeClaim]
) -> tuple[CapacityReservation, ...]:
    """Return the reservations that can take an instance now.

    Instances launched since the reservations were last read count as taken.
    """
    taken: dict[str, int] = {}
    for claim in claims:
        reservation = claim.labels.get(RESERVATION_ID)
        if reservation and claim.phase is not Phase.GIVEN_UP and claim.created_at >= status.resolved_at:
            taken[reservation] = taken.get(reservation, 0) + 1
    left = (replace(r, available=r.available - taken.get(r.id, 0)) for r in status.capacity_reservations)
    return tuple(r for r in left if r.available > 0 and not r.expiring)


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
    found: dict[str, tuple[Offering, ...]] = {}
    wanted = {key: requirements[key] for key in _OFFERING_KEYS if key in requirements}
    for reservation in reservations:
        kind, zone = types.get(reservation.instance_type), reservation.zone
        if kind is None or zone not in zones or OfferingKey(RESERVED, kind.name, zone) in closed:
            continue
        labels = reservation_labels(reservation)
        sold = [o for o in kind.offerings if o.capacity_type == ON_DEMAND]
        here = next((o for o in sold if o.zone == zone), None)
        price = here.price_hourly_usd if here else min((o.price_hourly_usd for o in sold), default=0.0)
        offering = Offering(
            zone, RESERVED, price, zone_id=here.zone_id if here else "", reservation=reservation.id
        )
        if allows_offering(wanted, offering) and all(
            wanted[key].allows(value) for key, value in labels.items() if key in wanted
        ):
            found[kind.name] = (*found.get(kind.name, ()), offering)
    return found


def reservation_labels(reservation: CapacityReservation) -> dict[str, str]:
    """Return the labels of nodes that run in a reservation."""
    return {
        RESERVATION_ID: reservation.id,
        _RESERVATION_TYPE: reservation.kind,
        _INTERRUPTIBLE: str(reservation.interruptible).lower(),
    }


def reservation_limit(reservation: str) -> str:
    """Return the name under which a reservation's free instances are a limit, next to the limits of the NodePool."""
    return f"{_LIMIT}{reservation}"
