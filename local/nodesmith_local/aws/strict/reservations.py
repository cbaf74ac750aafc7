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


def describe(asked: Mapping[str, Any], known: Sequence[Reservation]) -> ActionResult:
    """Answer with the known reservations that match; `known` has the form of the answer.

    Raises Refusal for an unknown id, and for ids together with a page size.
    """
    ids = asked.get("CapacityReservationIds") or ()
    if ids and asked.get("MaxResults"):
        raise Refusal("InvalidParameterCombination", "Ids cannot be used with the parameter maxResults")
    missing = sorted(set(ids) - {each["CapacityReservationId"] for each in known})
    if missing:
        code = "InvalidCapacityReservationId.NotFound"
        raise Refusal(code, f"The capacity reservation ID '{missing[0]}' does not exist")
    found = [each for each in known if not ids or each["CapacityReservationId"] in ids]
    for one in asked.get("Filters") or ():
        found = [each for each in found if _fits(each, str(one["Name"]), one.get("Values") or ())]
    return ActionResult({"CapacityReservations": found})


def _fits(reservation: Reservation, name: str, values: Sequence[str]) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in reservation.get("Tags") or ()}
    if name == "tag-key":
        return not tags.keys().isdisjoint(values)
    if name.startswith("tag:"):
        return tags.get(name.removeprefix("tag:")) in values
    return reservation.get(_FIELDS[name]) in values
