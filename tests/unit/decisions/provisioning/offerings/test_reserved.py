"""Reserved capacity is paid for anyway: it is used first, no more than is free, and the rest is bought."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, PlannedNode, decide, replicas
from nodesmith.decisions.provisioning.nodeclaims import by_hand
from nodesmith.decisions.scheduling.offerings.quotas import RemainingQuotas
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import free_reservations
from nodesmith.model.apimachinery.labels import RESERVED
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.nodeclasses.status import CapacityReservation
from tests.builders import (
    NOW,
    ZONES,
    claim,
    expression,
    inputs,
    ledger,
    nodeclaim_manifest,
    nodeclass_manifest,
    nodeclass_status,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

BIG = shape("6", "4Gi")  # one fills a 2xlarge
RESERVATION = CapacityReservation("cr-1", "m5.2xlarge", ZONES[0], 2)
ID = "karpenter.k8s.aws/capacity-reservation-id"
ANY = (expression("kubernetes.io/arch", "In", "amd64"),)


def decided(
    count: int,
    *reservations: CapacityReservation,
    of: Shape = BIG,
    pools: tuple[dict[str, Any], ...] = (nodepool_manifest(requirements=ANY),),
    **known: Any,
) -> Plan:
    status = nodeclass_status(capacity_reservations=reservations)
    seen = snapshot(pods=pods(of, count), nodepools=pools)
    return decide(inputs(snapshot=seen, ledger=ledger(nodeclasses={"default": status}, **known)))


def reserved(plan: Plan) -> list[PlannedNode]:
    return [node for node in plan.nodes if node.claim.capacity_type == RESERVED]


def test_a_reservation_is_used_before_spot() -> None:
    (node,) = decided(1, RESERVATION).nodes

    assert node.claim.capacity_type == RESERVED
    assert node.claim.labels[ID] == "cr-1"
    assert node.price_hourly_usd == 0, "it is paid for anyway"
    assert [o.instance_type for o in node.request.overrides] == ["m5.2xlarge"]


def test_no_more_of_it_is_used_than_is_free_and_the_rest_is_bought() -> None:
    plan = decided(5, RESERVATION)

    assert len(reserved(plan)) == 2
    assert sum(len(node.claim.nominated) for node in plan.nodes) == 5
    assert not plan.unplaced
    assert plan.bound_hourly_usd == 0, "no bound is claimed"


@pytest.mark.parametrize("second", [{}, {"weight": 5}, {"nodeclass": "other"}])
def test_nodepools_share_what_is_free_of_a_reservation(second: dict[str, Any]) -> None:
    status = nodeclass_status(capacity_reservations=(replace(RESERVATION, available=1),))
    pools = (
        nodepool_manifest("a", requirements=ANY, labels={"team": "a"}),
        nodepool_manifest("b", requirements=ANY, labels={"team": "b"}, **second),
    )
    of_each = [shape("6", "4Gi", app=team, nodeSelector={"team": team}) for team in "ab"]
    seen = snapshot(
        pods=[pod for each in of_each for pod in pods(each)],
        nodepools=pools,
        nodeclasses=(nodeclass_manifest(), nodeclass_manifest("other")),
    )
    known = {"default": status, "other": replace(status, name="other")}
    plan = decide(inputs(snapshot=seen, ledger=ledger(nodeclasses=known)))
    assert len(reserved(plan)) == 1
    assert sorted(node.claim.nodepool for node in plan.nodes) == ["a", "b"]


def test_instances_launched_since_the_reservation_was_read_count_as_taken() -> None:
    coming = claim(capacity_type=RESERVED, labels={ID: "cr-1"}, created_at=NOW + timedelta(seconds=1))

    others = (
        replace(coming, name="before", created_at=NOW - timedelta(hours=1)),
        replace(coming, name="refused", phase=Phase.GIVEN_UP),
        replace(coming, name="elsewhere", labels={}),
    )
    status = nodeclass_status(capacity_reservations=[RESERVATION], resolved_at=NOW)

    assert [left.available for left in free_reservations(status, [*others, coming])] == [1]
    assert [left.available for left in free_reservations(status, others)] == [2]
    assert len(reserved(decided(5, RESERVATION, claims=(coming,)))) == 1


@pytest.mark.parametrize(
    ("phase", "launched_at", "left"),
    [
        (Phase.PENDING, None, 1),
        (Phase.LAUNCHED, NOW + timedelta(seconds=2), 1),
        (Phase.LAUNCHED, NOW - timedelta(seconds=2), 2),
    ],
)
def test_a_claim_decided_before_the_reservation_was_read_counts_if_it_is_launched_later(
    phase: Phase, launched_at: datetime | None, left: int
) -> None:
    decided_before = NOW - timedelta(seconds=5)
    bought = claim(
        phase=phase,
        capacity_type=RESERVED,
        labels={ID: "cr-1"},
        created_at=decided_before,
        launched_at=launched_at,
    )
    status = nodeclass_status(capacity_reservations=[RESERVATION], resolved_at=NOW)

    assert [each.available for each in free_reservations(status, [bought])] == [left]


def test_a_reservation_with_a_back_off_is_left_alone() -> None:
    held = Backoff(NOW + timedelta(minutes=3), 1, "ReservationCapacityExceeded")

    plan = decided(1, RESERVATION, unavailable={OfferingKey(RESERVED, "m5.2xlarge", ZONES[0]): held})

    assert not reserved(plan)
    assert len(plan.nodes) == 1


def test_a_reservation_that_is_about_to_end_or_in_a_zone_without_subnet_is_left_alone() -> None:
    for useless in (replace(RESERVATION, expiring=True), replace(RESERVATION, zone="us-east-1f")):
        assert not reserved(decided(1, useless))


def test_a_nodepool_that_allows_only_other_capacity_types_does_not_use_it() -> None:
    only_spot = nodepool_manifest(requirements=(expression("karpenter.sh/capacity-type", "In", "spot"),))

    assert not reserved(decided(1, RESERVATION, pools=(only_spot,)))


def test_a_nodepool_of_reserved_capacity_alone_buys_nothing_else() -> None:
    only_reserved = nodepool_manifest(
        requirements=(expression("karpenter.sh/capacity-type", "In", "reserved"),)
    )

    plan = decided(5, RESERVATION, pools=(only_reserved,))

    assert len(plan.nodes) == 2
    (left,) = plan.unplaced
    assert len(left.pods) == 3
    assert left.reason == (
        "NodePool default: all instances of cr-1 are in use, and only reserved capacity is suitable"
    )
    assert (left.cause.blocking, left.cause.fix) == (
        "capacity reservations",
        "enlarge the capacity reservation, or allow on-demand or spot capacity",
    )


def test_pods_may_ask_for_reserved_capacity() -> None:
    picky = shape("6", "4Gi", nodeSelector={"karpenter.sh/capacity-type": "reserved"})

    plan = decided(3, RESERVATION, of=picky)

    assert len(plan.nodes) == len(reserved(plan)) == 2
    assert [group.cause.blocking for group in plan.unplaced] == ["capacity reservations"]


def test_limits_of_the_nodepool_hold_for_reserved_nodes_too() -> None:
    limited = nodepool_manifest(requirements=ANY, limits={"cpu": "8"})

    assert len(decided(5, RESERVATION, pools=(limited,)).nodes) == 1


@pytest.mark.parametrize(("free", "kinds"), [(0, [3, 0]), (1, [2, 1]), (2, [1, 2]), (9, [0, 3])])
def test_a_static_nodepool_uses_no_more_of_a_reservation_than_is_free(free: int, kinds: list[int]) -> None:
    pool = nodepool_manifest(requirements=ANY)
    pool["spec"]["replicas"] = 3
    held = replace(RESERVATION, available=free)
    status = nodeclass_status(zones=ZONES[:1], capacity_reservations=(held,))
    given = inputs(snapshot=snapshot(nodepools=(pool,)), ledger=ledger(nodeclasses={"default": status}))

    nodes, refused = replicas(given)

    bought = [node.claim.capacity_type for node in nodes]
    assert refused == {}
    assert [sum(each != RESERVED for each in bought), bought.count(RESERVED)] == kinds


@pytest.mark.parametrize("zone", ZONES)
def test_a_static_nodepool_uses_a_reservation_first_in_whichever_zone_it_is(zone: str) -> None:
    pool = nodepool_manifest(requirements=ANY)
    pool["spec"]["replicas"] = 2
    status = nodeclass_status(capacity_reservations=(replace(RESERVATION, zone=zone),))
    given = inputs(snapshot=snapshot(nodepools=(pool,)), ledger=ledger(nodeclasses={"default": status}))

    nodes, _ = replicas(given)

    reserved_nodes = [node for node in nodes if node.claim.capacity_type == RESERVED]
    assert [o.zone for node in reserved_nodes for o in node.request.overrides] == [zone]
    zones = {override.zone for node in nodes for override in node.request.overrides}
    assert len(zones) == 2, "the nodes are spread over zones all the same"


def test_a_static_nodepool_of_reserved_capacity_is_told_that_none_is_left() -> None:
    pool = nodepool_manifest(requirements=(expression("karpenter.sh/capacity-type", "In", "reserved"),))
    pool["spec"]["replicas"] = 1
    status = nodeclass_status(capacity_reservations=(replace(RESERVATION, available=1),))
    asked = nodeclaim_manifest(pool["spec"]["template"]["spec"]["requirements"])
    seen = snapshot(nodepools=(pool,), nodeclaims=(asked,))
    given = inputs(snapshot=seen, ledger=ledger(nodeclasses={"default": status}))
    left = RemainingQuotas(())

    own = by_hand(given, left)
    nodes, refused = replicas(given, left)

    assert [node.claim.capacity_type for node in own.planned] == [RESERVED]
    assert nodes == []
    assert "all instances of cr-1 are in use, and only reserved capacity is suitable" in refused["default"]
