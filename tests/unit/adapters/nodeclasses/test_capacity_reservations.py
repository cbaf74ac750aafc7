"""Capacity reservations: those that an EC2NodeClass selects, and how the ledger stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from nodesmith.adapters.nodeclasses.selectedresources import capacity_reservations
from nodesmith.model.nodeclasses.nodeclasses import CapacityReservationSelectorTerm
from nodesmith.model.nodeclasses.status import CapacityReservation, nodeclass_item, read_nodeclass
from tests.builders import NOW, nodeclass_status

OPEN = {
    "CapacityReservationId": "cr-1",
    "InstanceType": "m5.large",
    "AvailabilityZone": "us-east-1a",
    "AvailableInstanceCount": 3,
    "InstanceMatchCriteria": "open",
    "OwnerId": "123456789012",
    "ReservationType": "default",
    "State": "active",
}
BLOCK = {**OPEN, "CapacityReservationId": "cr-2", "ReservationType": "capacity-block"}


class Ec2:
    """A fake EC2 with these reservations, which records the parameters of DescribeCapacityReservations."""

    def __init__(self, *reservations: Mapping[str, Any]) -> None:
        self.reservations = reservations
        self.asked: list[Mapping[str, Any]] = []

    def describe_capacity_reservations(self, **how: list[str]) -> Mapping[str, Any]:
        (ids,) = how.values()
        self.asked.append(how)
        found = [r for r in self.reservations if r["CapacityReservationId"] in ids]
        if len(found) < len(ids):
            error: Any = {
                "Error": {"Code": "InvalidCapacityReservationId.NotFound", "Message": "does not exist"}
            }
            raise ClientError(error, "DescribeCapacityReservations")
        return {"CapacityReservations": found}

    def get_paginator(self, operation: str) -> Ec2:
        assert operation == "describe_capacity_reservations"
        return self

    def paginate(self, **how: list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
        self.asked.append({each["Name"]: each["Values"] for each in how["Filters"]})
        yield {"CapacityReservations": self.reservations}


def found(*reservations: Mapping[str, Any]) -> tuple[CapacityReservation, ...]:
    return capacity_reservations(
        Ec2(*reservations), [CapacityReservationSelectorTerm({"team": "ml"})], NOW, []
    )


def test_each_id_is_described_separately_and_other_terms_by_their_filters() -> None:
    ec2 = Ec2(OPEN)
    terms = [
        CapacityReservationSelectorTerm(id="cr-2"),
        CapacityReservationSelectorTerm(id="cr-1"),
        CapacityReservationSelectorTerm(
            {"team": "ml"}, owner_id="123456789012", instance_match_criteria="open"
        ),
    ]

    reservations = capacity_reservations(ec2, terms, NOW, [])

    assert [r.id for r in reservations] == ["cr-1"], "one that two terms select is one; an unknown id is none"
    assert ec2.asked == [
        {"CapacityReservationIds": ["cr-1"]},
        {"CapacityReservationIds": ["cr-2"]},
        {
            "tag:team": ["ml"],
            "owner-id": ["123456789012"],
            "instance-match-criteria": ["open"],
            "state": ["active"],
        },
    ]


def test_an_inactive_reservation_named_by_id_is_not_used() -> None:
    ec2 = Ec2({**OPEN, "State": "cancelled"})

    assert capacity_reservations(ec2, [CapacityReservationSelectorTerm(id="cr-1")], NOW, []) == ()


def test_a_reservation_has_its_pool_and_its_free_capacity() -> None:
    (reservation,) = found(OPEN)

    assert (reservation.instance_type, reservation.zone, reservation.available) == (
        "m5.large",
        "us-east-1a",
        3,
    )
    assert (reservation.kind, reservation.match_criteria, reservation.expiring) == ("default", "open", False)


def test_an_ended_reservation_is_omitted() -> None:
    assert found({**OPEN, "EndDate": NOW - timedelta(seconds=1)}) == ()


def test_a_capacity_block_is_expiring_in_its_last_forty_minutes() -> None:
    early, late = ({**BLOCK, "EndDate": NOW + timedelta(minutes=m)} for m in (41, 40))

    assert [r.expiring for r in (*found(early), *found(late))] == [False, True]


def test_an_ordinary_reservation_can_be_used_until_its_end() -> None:
    assert not found({**OPEN, "EndDate": NOW + timedelta(minutes=5)})[0].expiring


def test_selecting_no_reservation_is_not_an_error() -> None:
    assert found() == ()


def test_the_ledger_stores_reservations() -> None:
    known = nodeclass_status(capacity_reservations=found(OPEN, {**BLOCK, "EndDate": NOW + timedelta(days=1)}))

    assert read_nodeclass(nodeclass_item(known)) == known


def test_a_ledger_of_an_older_release_has_no_reservations() -> None:
    item = nodeclass_item(nodeclass_status())
    del item["capacity_reservations"]

    assert read_nodeclass(item).capacity_reservations == ()


@pytest.mark.parametrize(
    ("reservation", "note"),
    [
        (
            {**BLOCK, "EndDate": NOW - timedelta(hours=1)},
            "Capacity Block cr-2 has ended at 2026-11-21T11:00:00Z",
        ),
        ({**BLOCK, "State": "expired", "EndDate": NOW}, "Capacity Block cr-2 has ended"),
        (
            {**BLOCK, "State": "scheduled", "StartDate": NOW + timedelta(hours=1)},
            "Capacity Block cr-2 is scheduled: it starts at 2026-11-21T13:00:00Z",
        ),
        (
            {**OPEN, "CapacityReservationId": "cr-2", "State": "cancelled"},
            "capacity reservation cr-2 has ended: remove",
        ),
        ({**OPEN, "CapacityReservationId": "cr-3"}, "capacity reservation cr-2 does not exist: correct"),
    ],
)
def test_a_reservation_named_by_id_that_cannot_be_used_is_reported(
    reservation: dict[str, Any], note: str
) -> None:
    notes: list[str] = []
    term = CapacityReservationSelectorTerm(id="cr-2")
    assert capacity_reservations(Ec2(reservation), [term], NOW, notes) == ()
    (said,) = notes
    assert said.startswith(note)


def test_a_usable_reservation_is_not_remarked_on() -> None:
    notes: list[str] = []
    term = CapacityReservationSelectorTerm(id="cr-1")
    assert len(capacity_reservations(Ec2(OPEN), [term], NOW, notes)) == 1
    assert notes == []
