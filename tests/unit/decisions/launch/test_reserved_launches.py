"""Launching into reserved capacity: the reservation is explicit, and no other one is used by accident."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.adapters.ec2.fleetcalls import fleet_request
from nodesmith.decisions.launch import launch_plan
from nodesmith.model.apimachinery.labels import ON_DEMAND, RESERVED
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate
from nodesmith.model.nodeclasses.status import CapacityReservation
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NODECLASS, options, status

CLAIMED = replace(CLAIM, capacity_type=RESERVED)
PLAIN = CapacityReservation("cr-plain", "m5.large", "us-east-1a", 2)
BLOCK = replace(PLAIN, id="cr-block", kind="capacity-block")
PASSING = replace(PLAIN, id="cr-passing", interruptible=True)


def planned(*reservations: CapacityReservation) -> tuple[LaunchRequest, tuple[LaunchTemplate, ...]]:
    known = replace(status(), capacity_reservations=reservations)
    kind, _ = options(["m5.large"])[0]
    offered: list[tuple[InstanceType, Offering]] = [
        (kind, Offering(r.zone, RESERVED, 0.0, reservation=r.id)) for r in reservations
    ]
    return launch_plan(CLAIMED, offered, NODECLASS, known, CLUSTER)


def asked(reservation: CapacityReservation) -> dict[str, Any]:
    request, _ = planned(reservation)
    return fleet_request(request, "express")


def test_the_template_names_the_reservation_and_allows_nothing_else() -> None:
    _, (template,) = planned(PLAIN)

    assert template.data["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-plain"},
    }


def test_unreserved_launches_do_not_use_open_reservations() -> None:
    _, templates = launch_plan(CLAIM, options(["m5.large"]), NODECLASS, status(), CLUSTER)

    assert {str(t.data["CapacityReservationSpecification"]) for t in templates} == {
        str({"CapacityReservationPreference": "none"})
    }


@pytest.mark.parametrize(
    ("reservation", "target", "market"),
    [
        (PLAIN, ON_DEMAND, None),
        (BLOCK, "capacity-block", "capacity-block"),
        (PASSING, "reserved-capacity", "interruptible-capacity-reservation"),
    ],
    ids=["ordinary", "capacity block", "interruptible"],
)
def test_a_launch_request_names_the_type_of_its_reservation(
    reservation: CapacityReservation, target: str, market: str | None
) -> None:
    _, (template,) = planned(reservation)
    fleet = asked(reservation)

    assert fleet["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == target
    assert template.data.get("InstanceMarketOptions", {}).get("MarketType") == market
    assert ("ReservedCapacityOptions" in fleet) == (reservation is PASSING)


def test_a_request_has_one_reservation_type_that_of_the_cheapest_offering() -> None:
    elsewhere = replace(BLOCK, zone="us-east-1b")

    request, _ = planned(PLAIN, elsewhere)

    assert [override.zone for override in request.overrides] == ["us-east-1a"]


def test_the_reservation_type_of_a_request_is_stored() -> None:
    request, _ = planned(BLOCK)

    assert LaunchRequest.from_item(request.claim, request.to_item()) == request
