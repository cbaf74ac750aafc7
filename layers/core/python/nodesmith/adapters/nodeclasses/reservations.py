"""Capacity reservations that an EC2NodeClass selects: On-Demand Capacity Reservations and Capacity Blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from nodesmith.adapters.aws.calls import error_code, rows
from nodesmith.adapters.nodeclasses.networks import tag_filters
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.nodeclasses.nodeclasses import CapacityReservationSelectorTerm
from nodesmith.model.nodeclasses.status import CapacityReservation

CAPACITY_BLOCK = "capacity-block"
_ENDED = frozenset({"expired", "cancelled", "failed", "payment-failed", "unsupported"})
_NO_SUCH_ID = frozenset({"InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"})
BLOCK_ENDS_EARLY = timedelta(minutes=40)
"""EC2 starts terminating a block's instances 30 minutes before its end. Karpenter drains ten minutes earlier."""


def capacity_reservations(
    ec2: Any, terms: Sequence[CapacityReservationSelectorTerm], now: datetime, notes: list[str]
) -> tuple[CapacityReservation, ...]:
    """Return the active reservations that any term selects, ordered by id.

    There may be none, which is not an error, because reservations come and go. `notes` gets a sentence about each that
    a term names by id and that cannot be used.
    """
    named = [*_named(ec2, terms, notes)]
    notes += filter(None, (_over(raw, now) for raw in named))
    selected = [*named, *_filtered(ec2, terms)]
    found = {
        raw["CapacityReservationId"]: _reservation(raw, now)
        for raw in selected
        if raw.get("State") == "active" and (raw.get("EndDate") is None or raw["EndDate"] > now)
    }
    return tuple(found[id_] for id_ in sorted(found))


def _over(raw: Mapping[str, Any], now: datetime) -> str:
    """Return why a reservation cannot be used any more, or not yet; empty if it can."""
    kind = "Capacity Block" if raw.get("ReservationType") == CAPACITY_BLOCK else "capacity reservation"
    what, ends_at, state = f"{kind} {raw['CapacityReservationId']}", raw.get("EndDate"), raw.get("State")
    if (ends_at is not None and ends_at <= now) or state in _ENDED:
        when = f" at {format_time(ends_at)}" if ends_at is not None else ""
        return f"{what} has ended{when}: remove it from spec.capacityReservationSelectorTerms"
    if state != "active":
        starts_at = raw.get("StartDate")
        when = f": it starts at {format_time(starts_at)}" if starts_at is not None and starts_at > now else ""
        return f"{what} is {state}{when}"
    return ""


def _named(
    ec2: Any, terms: Iterable[CapacityReservationSelectorTerm], notes: list[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the reservations named by id, one call each: EC2 has no filter for ids, and an unknown id is an error."""
    for id_ in sorted({term.id for term in terms if term.id}):
        try:
            answer = ec2.describe_capacity_reservations(CapacityReservationIds=[id_])
        except ClientError as error:
            if error_code(error) not in _NO_SUCH_ID:
                raise
            notes.append(
                f"capacity reservation {id_} does not exist: correct spec.capacityReservationSelectorTerms"
            )
        else:
            yield from answer["CapacityReservations"]


def _filtered(ec2: Any, terms: Iterable[CapacityReservationSelectorTerm]) -> Iterator[Mapping[str, Any]]:
    active = {"Name": "state", "Values": ["active"]}
    for term in terms:
        if not term.id:
            named = {"owner-id": term.owner_id, "instance-match-criteria": term.instance_match_criteria}
            filters = [{"Name": name, "Values": [value]} for name, value in named.items() if value]
            asked = [*tag_filters(term.tags), *filters, active]
            yield from rows(ec2, "describe_capacity_reservations", "CapacityReservations", Filters=asked)


def _reservation(raw: Mapping[str, Any], now: datetime) -> CapacityReservation:
    kind, ends_at = raw.get("ReservationType", "default"), raw.get("EndDate")
    return CapacityReservation(
        id=raw["CapacityReservationId"],
        instance_type=raw["InstanceType"],
        zone=raw["AvailabilityZone"],
        available=int(raw["AvailableInstanceCount"]),
        kind=kind,
        match_criteria=raw.get("InstanceMatchCriteria", "targeted"),
        owner_id=raw.get("OwnerId", ""),
        interruptible=bool(raw.get("Interruptible")),
        expiring=kind == CAPACITY_BLOCK and ends_at is not None and ends_at - now <= BLOCK_ENDS_EARLY,
        ends_at=ends_at,
    )
