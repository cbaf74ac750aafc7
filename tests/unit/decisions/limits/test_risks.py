"""The interruptions of a pool add to the cost of its nodes, and are gradually forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from math import log
from typing import Any

import pytest

from nodesmith.decisions.disruption.interruption import risks_after
from nodesmith.decisions.provisioning import Inputs, Plan, decide
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.items import ledger_item, read_ledger
from nodesmith.model.ledger.learned import HALF_LIFE, Risk
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.policies import NodeSettings
from tests import builders
from tests.builders import NOW, ZONES

POOL, OTHER = (OfferingKey("spot", "m5.large", zone) for zone in ZONES[:2])
HOUR = timedelta(hours=1)


def test_losses_halve_with_every_half_life() -> None:
    risk = Risk(0.8, NOW)
    assert risk.losses_at(NOW + HALF_LIFE) == pytest.approx(0.4)
    assert risk.losses_at(NOW + 3 * HALF_LIFE) == pytest.approx(0.1)
    assert risk.losses_at(NOW - HOUR) == 0.8, "a clock that is behind makes nothing worse"


@pytest.mark.parametrize("each_hour", [0.1, 0.5])
def test_the_surcharge_of_a_pool_follows_its_rate_of_interruptions(
    each_hour: float,
) -> None:
    risk, now = Risk(0.0, NOW), NOW
    for _ in range(int(20 * 24 * each_hour)):  # twenty days, by which a sum of halves has come to its end
        now += HOUR / each_hour
        risk = risk.after(1.0, now)
    assert risk.surcharge_percent(now, 1.0) == pytest.approx(100 * each_hour, rel=0.2)
    assert risk.surcharge_percent(now, 2.0) == pytest.approx(2 * risk.surcharge_percent(now, 1.0), abs=1)
    assert risk.surcharge_percent(now, 0.0) == 0


def test_one_interruption_of_the_only_node_adds_three_percent_and_is_forgotten_within_a_week() -> None:
    risk = Risk(0.0, NOW).after(1.0, NOW)
    assert risk.surcharge_percent(NOW, 1.0) == round(100 * log(2) / 24) == 3
    assert risk.surcharge_percent(risk.forgotten_at, 1.0) == 0
    assert timedelta(days=6) < risk.forgotten_at - NOW < timedelta(days=7)


def test_the_losses_of_a_pool_are_the_share_of_nodes_that_it_interrupted() -> None:
    fields = {"capacity_type": "spot", "instance_type": "m5.large"}
    here = [builders.claim(f"here-{n}", phase=Phase.INITIALIZED, zone=ZONES[0], **fields) for n in range(4)]
    there = builders.claim("there", phase=Phase.REGISTERED, zone=ZONES[1], **fields)
    known = Risk(0.5, NOW - HALF_LIFE)
    ledger = Ledger(claims=(*here, there), risks={OTHER: known})
    found = risks_after({"here-0": POOL, "here-1": POOL, "there": OTHER}, ledger, NOW)
    assert found == {POOL: Risk(0.5, NOW), OTHER: Risk(1.25, NOW)}


def test_risks_are_read_from_the_ledger_as_they_were_written() -> None:
    ledger = Ledger(risks={POOL: Risk(0.5, NOW), OTHER: Risk(1.5, NOW - HOUR)})
    assert read_ledger(json.loads(json.dumps(ledger_item(ledger)))).risks == ledger.risks


# What is bought


def bought(risks: dict[OfferingKey, Risk], *requirements: dict[str, Any], hours: float = 1.0) -> Plan:
    """Decide about one pod for which only spot is available."""
    wanted = [builders.expression("karpenter.sh/capacity-type", "In", "spot"), *requirements]
    pool = builders.nodepool_manifest(requirements=wanted)
    pods = builders.pods(builders.shape("900m", "1Gi"), 1)
    inputs: Inputs = builders.inputs(
        snapshot=builders.snapshot(pods=pods, nodepools=(pool,)),
        settings=NodeSettings(interruption_cost_hours=hours),
    )
    return decide(replace(inputs, ledger=replace(inputs.ledger, risks=risks)))


def choices(plan: Plan) -> tuple[OfferingKey, ...]:
    """Return the offerings requested from EC2 for the only node, cheapest first."""
    (node,) = plan.nodes
    return node.request.offerings()


def often(plan: Plan, number: int = 5) -> dict[OfferingKey, Risk]:
    """Return the risks if the preferred pool has interrupted the only node this many times."""
    return {choices(plan)[0]: Risk(float(number), NOW)}


def test_a_pool_with_frequent_interruptions_is_left_out_if_its_type_has_other_pools() -> None:
    plain = bought({})
    risky = bought(often(plain))
    assert choices(plain)[0] not in choices(risky)
    assert {k.instance_type for k in choices(plain)} <= {k.instance_type for k in choices(risky)}


def test_the_next_cheapest_offering_is_bought_in_its_place() -> None:
    plain = bought({})
    risky = bought(often(plain))
    assert choices(risky)[0] == next(key for key in choices(plain) if key != choices(plain)[0])


ONE_TYPE = builders.expression("node.kubernetes.io/instance-type", "In", "m5.large")


def test_a_risky_pool_is_bought_at_its_price_if_nothing_else_fits() -> None:
    plain = bought({}, ONE_TYPE)
    zone = builders.expression("topology.kubernetes.io/zone", "In", choices(plain)[0].zone)
    risky = bought(often(plain, 50), ONE_TYPE, zone)
    assert choices(risky) == choices(plain)[:1]
    assert risky.price_hourly_usd == plain.price_hourly_usd, (
        "a risk steers the choice, it is no part of a price"
    )


def test_a_type_that_is_risky_everywhere_comes_last_among_few_types() -> None:
    few = builders.expression("node.kubernetes.io/instance-type", "In", "m5.large", "m5a.large")
    plain = bought({}, few)
    first = choices(plain)[0].instance_type
    risks = {key: Risk(20.0, NOW) for key in choices(plain) if key.instance_type == first}
    risky = bought(risks, few)
    assert choices(risky)[0].instance_type != first
    assert choices(risky)[-1].instance_type == first


def test_price_alone_decides_if_interruptions_cost_nothing() -> None:
    plain = bought({})
    assert choices(bought(often(plain, 50), hours=0.0)) == choices(plain)
