"""How many options a request to EC2 has when many offerings recently lacked capacity."""

from __future__ import annotations

from datetime import timedelta

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ledger.learned import Backoff
from tests import builders


def plan_with_closed(count: int) -> Plan:
    """Decide for seven pods in a zone where `count` spot offerings, none of them used here, lack capacity."""
    web = builders.shape(nodeSelector={"topology.kubernetes.io/zone": "us-east-1a"})
    until = builders.NOW + timedelta(minutes=3)
    closed = {
        OfferingKey("spot", f"x9.{number}xlarge", "us-east-1a"): Backoff(until, 1) for number in range(count)
    }
    return decide(builders.inputs(pods=builders.pods(web, 7), ledger=builders.ledger(unavailable=closed)))


def test_options_stay_near_the_price_while_capacity_is_available() -> None:
    (node,) = plan_with_closed(14).nodes

    dearest = max(o.price_hourly_usd for o in node.request.overrides)
    assert dearest <= node.price_hourly_usd * 2


def test_options_are_as_wide_as_possible_where_capacity_is_scarce() -> None:
    (usual,) = plan_with_closed(14).nodes
    (wide,) = plan_with_closed(15).nodes

    assert wide.price_hourly_usd == usual.price_hourly_usd
    assert len(usual.request.overrides) < len(wide.request.overrides) <= 60
    assert {o.zone for o in wide.request.overrides} == {"us-east-1a"}


def test_spot_options_never_exceed_the_price_of_on_demand() -> None:
    (node,) = plan_with_closed(15).nodes

    catalog = builders.catalog()
    on_demand = min(
        offering.price_hourly_usd
        for override in node.request.overrides
        for offering in catalog.offerings[override.instance_type]
        if offering.capacity_type == "on-demand"
    )
    assert max(o.price_hourly_usd for o in node.request.overrides) <= on_demand


def test_a_preferred_spread_avoids_a_zone_where_capacity_is_scarce() -> None:
    until = builders.NOW + timedelta(minutes=3)
    closed = {
        OfferingKey("spot", f"x9.{number}xlarge", zone): Backoff(until, 1)
        for number in range(15)
        for zone in ("us-east-1a", "us-east-1b")
    }

    def zones(*, hard: bool) -> set[str]:
        web = builders.shape(topologySpreadConstraints=builders.spread(hard=hard))
        plan = decide(builders.inputs(pods=builders.pods(web, 9), ledger=builders.ledger(unavailable=closed)))
        return {o.zone for node in plan.nodes for o in node.request.overrides}

    assert zones(hard=False) == {"us-east-1c"}
    assert zones(hard=True) == {"us-east-1a", "us-east-1b", "us-east-1c"}
