"""DescribeCapacityReservations, which moto lacks: by ids or by filters, with EC2's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moto.core.responses import ActionResult

from nodesmith_local.aws.strict.refusals import Refusal

Reservation = Mapping[str, Any]
_FIELDS = {
    "availability-zone": "AvailabilityZone",
    "instance-match-criteria": "InstanceMatchCriteria",
    "instance-type": "InstanceType",
    "owner-id": "OwnerId",
    "state": "State",
}


def describe(parameters: Mapping[str, Any], reservations: Sequence[Reservation]) -> ActionResult:
    """Answer with the reservations that match; `reservations` has the form of the answer.

    Raises Refusal for an unknown id, and for ids together with a page size.
    """
    ids = parameters.get("CapacityReservationIds") or ()
    if ids and parameters.get("MaxResults"):
        raise Refusal("InvalidParameterCombination", "Ids cannot be used with the parameter maxResults")
    missing = sorted(set(ids) - {reservation["CapacityReservationId"] for reservation in reservations})
    if missing:
        code = "InvalidCapacityReservationId.NotFound"
        raise Refusal(code, f"The capacity reservation ID '{missing[0]}' does not exist")
    matching = [
        reservation for reservation in reservations if not ids or reservation["CapacityReservationId"] in ids
    ]
    for filter_ in parameters.get("Filters") or ():
        matching = [
            reservation
            for reservation in matching
            if _fits(reservation, str(filter_["Name"]), filter_.get("Values") or ())
        ]
    return ActionResult({"CapacityReservations": matching})


def _fits(reservation: Reservation, name: str, values: Sequence[str]) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in reservation.get("Tags") or ()}
    if name == "tag-key":
        return not tags.keys().isdisjoint(values)
    if name.startswith("tag:"):
        return tags.get(name.removeprefix("tag:")) in values
    return reservation.get(_FIELDS[name]) in values
