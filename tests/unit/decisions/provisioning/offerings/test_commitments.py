"""Savings Plans and Reserved Instances: whom AWS applies them to, and what decisions make of what is unused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments
from nodesmith.controllers.region.commitments import claim_commitments
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs, Plan, decide
from nodesmith.decisions.provisioning.decide import replay
from nodesmith.decisions.provisioning.plan import inputs_of, plan_item, record
from nodesmith.decisions.scheduling.offerings.commitments import (
    Running,
    _paid_for,
    applied,
    marginal_prices,
    on_demand_prices,
    usage_of,
)
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import SharedLimit, shared_limit
from nodesmith.errors import Conflict
from nodesmith.model.apimachinery.frozen import FrozenMap, canonical
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ON_DEMAND, OS, RESERVED, SPOT, TENANCY
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.costs.commitmentsettings import parse_commitment_settings
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodeoverlays import PRICE_APPLIED
from nodesmith.model.ledger.commitments import (
    Commitment,
    CommitmentBook,
    CommitmentKind,
    Commitments,
    quarter_units,
)
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import USD_PER_HOUR
from tests.builders import (
    NOW,
    ZONES,
    catalog,
    claim,
    expression,
    inputs,
    ledger,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)
from tests.fakes.table import FakeTable
from tests.objects.fleets import fleet, running, worker
from tests.objects.nodeoverlays import overlay

ZONE = ZONES[0]
ENDS = NOW + timedelta(days=300)
PRICES = on_demand_prices(catalog())
BIG = shape("6", "20Gi")  # one fills a 2xlarge
M5 = 0.384  # what m5.2xlarge costs on demand


def plan(id_: str, hourly_usd: float, discount: float, family: str = "") -> Commitment:
    rates = {
        kind: round(price * (1 - discount) * 1_000_000)
        for (kind, zone), price in PRICES.items()
        if zone == ZONE and family in ("", kind.partition(".")[0])
    }
    kind = CommitmentKind.EC2_INSTANCE if family else CommitmentKind.COMPUTE
    amount = round(hourly_usd * 1_000_000)
    return Commitment(id_, kind, amount, ENDS, family, rates=FrozenMap(rates), hourly_usd=hourly_usd)


def reserved(instance_type: str, count: int, zone: str = "") -> Commitment:
    kind = CommitmentKind.ZONAL if zone else CommitmentKind.REGIONAL
    amount = count if zone else count * quarter_units(instance_type)
    return Commitment(f"ri-{instance_type}-{zone}", kind, amount, ENDS, instance_type, zone)


def book(
    *found: Commitment, running_outside: Mapping[tuple[str, str], float] | None = None
) -> CommitmentBook:
    return CommitmentBook(NOW - timedelta(minutes=30), found, {"": running_outside or {}})


def paid(
    usage: Mapping[tuple[str, str], float], *found: Commitment
) -> dict[tuple[str, str], dict[str, float]]:
    answer = applied(book(*found).pools(NOW), usage, PRICES)
    return {key: {name.partition("/")[2]: n for name, n in by.items()} for key, by in answer.paid.items()}


def test_a_zonal_reservation_pays_before_a_regional_one_and_both_before_savings_plans() -> None:
    zonal, regional = reserved("m5.large", 1, ZONE), reserved("m5.large", 1)
    found = paid({("m5.large", ZONE): 4}, zonal, regional, plan("all", 10, 0.3))
    (by_pool,) = found.values()
    assert list(by_pool.values()) == [1, 1, 2]


def test_a_regional_reservation_pays_for_sizes_from_the_smallest_up_by_normalized_units() -> None:
    usage = {
        ("m5.large", ZONE): 1,
        ("m5.xlarge", ZONES[1]): 1,
        ("m5.2xlarge", ZONE): 1,
        ("c5.large", ZONE): 1,
    }
    found = paid(usage, reserved("m5.2xlarge", 1))
    assert found == {
        ("m5.large", ZONE): {"m5": 1},
        ("m5.xlarge", ZONES[1]): {"m5": 1},
        ("m5.2xlarge", ZONE): {"m5": 0.25},
    }


def test_a_regional_reservation_of_an_inflexible_family_pays_for_its_own_size_only() -> None:
    usage = {("g5.xlarge", ZONE): 2, ("g5.2xlarge", ZONE): 1}
    assert paid(usage, reserved("g5.xlarge", 1)) == {("g5.xlarge", ZONE): {"g5.xlarge": 1}}


def test_a_savings_plan_pays_for_the_highest_discount_first_and_for_parts_of_instances() -> None:
    low = plan("all", 1.0, 0.3)
    rates = FrozenMap({**low.rates, "c5.2xlarge": low.rates["c5.2xlarge"] // 2})
    answer = applied(
        book(replace(low, rates=rates)).pools(NOW), {("m5.2xlarge", ZONE): 5, ("c5.2xlarge", ZONE): 1}, PRICES
    )
    assert answer.share_of("c5.2xlarge", ZONE) == 1
    left = 1_000_000 - rates["c5.2xlarge"]
    assert answer.share_of("m5.2xlarge", ZONE) == pytest.approx(left / rates["m5.2xlarge"] / 5)
    assert set(answer.left.values()) == {0}


def test_what_is_covered_and_what_is_not_add_up_to_the_price_on_demand() -> None:
    usage = {("m5.large", ZONE): 4.0, ("c5.large", ZONE): 1.0}
    found = applied(book(reserved("m5.large", 1, ZONE)).pools(NOW), usage, PRICES)
    m5, c5 = (PRICES[kind, ZONE] for kind in ("m5.large", "c5.large"))
    assert found.covered_hourly_usd == pytest.approx(m5)
    assert found.uncovered_hourly_usd == pytest.approx(3 * m5 + c5)


def test_an_expired_commitment_pays_for_nothing() -> None:
    assert book(replace(plan("all", 1, 0.3), ends=NOW)).pools(NOW) == ()


def launched(
    capacity_type: str = ON_DEMAND, labels: Mapping[str, str] = FrozenMap(), **fields: Any
) -> NodeClaim:
    """Return a claim with an m5.large."""
    known = {"instance_type": "m5.large", "zone": ZONE, "capacity_type": capacity_type, **fields}
    return claim(labels={CAPACITY_TYPE: capacity_type, **labels}, **known)


RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type"


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (launched(), True),
        (launched(SPOT), False),
        (launched(RESERVED, {RESERVATION_TYPE: "default"}), True),
        (launched(RESERVED, {RESERVATION_TYPE: "capacity-block"}), False),
        (launched(SPOT, {RESERVATION_TYPE: "default"}), False),
        (launched(labels={OS: "windows"}), False),
        (launched(labels={TENANCY: "dedicated"}), False),
        (launched(phase=Phase.GIVEN_UP), False),
        (launched(phase=Phase.TERMINATED), False),
        (launched(instance_gone_at=NOW), False),
        (launched(zone=""), False),
    ],
)
def test_commitments_apply_to_linux_on_shared_hardware_that_is_billed_on_demand(
    one: NodeClaim, counts: bool
) -> None:
    assert usage_of([one, one]) == ({("m5.large", ZONE): 2} if counts else {})


def test_a_claim_that_is_not_launched_counts_as_its_first_choice() -> None:
    rows = [["lt", "c5.large", ZONES[1], "subnet-b", 0.1], ["lt", "m5.large", ZONE, "subnet-a", 0.2]]
    pending = launched(phase=Phase.PENDING, launch={"overrides": rows})
    assert usage_of([pending]) == {("c5.large", ZONES[1]): 1}
    assert usage_of([launched(launch={"overrides": rows})]) == {("m5.large", ZONE): 1}


def test_a_plan_counts_by_its_own_rate_and_a_reservation_by_the_list_price() -> None:
    offering = next(o for o in catalog().offerings["m5.2xlarge"] if o.capacity_type == ON_DEMAND)
    (of_plan,) = book(plan("m5", 1.0, 0.4, "m5")).pools(NOW)
    (of_reservation,) = book(reserved("m5.2xlarge", 1, ZONE)).pools(NOW)
    use = of_plan.use("m5.2xlarge", ZONE)
    assert _paid_for(offering, of_plan, use).risk_hourly_usd == pytest.approx(M5 * 0.6 * 0.0075)
    found = _paid_for(offering, of_reservation, 1)
    assert found.risk_hourly_usd == pytest.approx(M5 * 0.0025)
    assert (found.price_hourly_usd, found.listed_hourly_usd, found.commitment_use) == (0.0, M5, 1)


def test_a_node_takes_only_from_the_commitments_that_pay_for_it() -> None:
    (pool,) = book(plan("m5", 1.0, 0.4, "m5")).pools(NOW)
    offering = next(o for o in catalog().offerings["m5.2xlarge"] if o.capacity_type == ON_DEMAND)
    (node_type,) = (t for t in instance_types(catalog(), NodeConfiguration()) if t.name == "m5.2xlarge")
    limit = SharedLimit.of_commitments(pool.name)
    assert limit.cost(node_type, _paid_for(offering, pool, 230_400)) == 230_400
    assert limit.cost(node_type, replace(_paid_for(offering, pool, 230_400), commitment="other")) == 0
    assert limit.cost(node_type, offering) == 0
    assert limit.cost(node_type, None) == 0


@pytest.mark.parametrize(
    "rest",
    [
        Requirement(CAPACITY_TYPE, frozenset({SPOT})),
        Requirement(CAPACITY_TYPE, frozenset({SPOT}), complement=True, exists=True),
        Requirement(CAPACITY_TYPE),
    ],
)
def test_a_limit_is_read_from_its_name(rest: Requirement) -> None:
    limit = SharedLimit("quota/all", USD_PER_HOUR, Requirements.of(rest))
    assert shared_limit(limit.name) == limit
    assert shared_limit("cpu") is None


def test_a_node_whose_offering_is_open_takes_of_a_quota_the_least_that_any_takes() -> None:
    (node_type,) = (t for t in instance_types(catalog(), NodeConfiguration()) if t.name == "m5.2xlarge")
    hourly = SharedLimit("quota/all", USD_PER_HOUR)
    spot_only = replace(hourly, rest=Requirements.of(Requirement(CAPACITY_TYPE, frozenset({SPOT}))))
    costs = [hourly.cost(node_type, each) for each in node_type.offerings]

    assert hourly.cost(node_type, None) == min(costs) > 0
    assert spot_only.cost(node_type, None) == 0
    assert hourly.cost(replace(node_type, offerings=()), None) == 0


ANY = (expression("kubernetes.io/arch", "In", "amd64"),)


def inputs_with(
    commitments: Commitments, count: int, *, capacity: tuple[str, ...] = (ON_DEMAND, SPOT)
) -> Inputs:
    pool = nodepool_manifest(requirements=(*ANY, expression("karpenter.sh/capacity-type", "In", *capacity)))
    seen = snapshot(pods=pods(BIG, count), nodepools=(pool,))
    return inputs(snapshot=seen, ledger=ledger(commitments=commitments))


def decided(*found: Commitment, count: int = 1, **more: Mapping[tuple[str, str], float]) -> Plan:
    return decide(inputs_with(Commitments(book(*found, **more)), count))


def committed(result: Plan) -> int:
    return sum(bool(node.request.cheapest.commitment) for node in result.nodes)


def test_unused_commitments_are_used_before_spot_and_add_nothing_to_the_bill() -> None:
    (node,) = decided(plan("m5", 1.0, 0.4, "m5")).nodes
    assert (node.claim.capacity_type, node.request.cheapest.instance_type) == (ON_DEMAND, "m5.2xlarge")
    assert node.price_hourly_usd == 0
    assert node.claim.price_hourly_usd == pytest.approx(M5), "limits in dollars count what it may cost"


def test_no_nodeoverlay_sets_the_price_of_what_commitments_pay_for() -> None:
    known = inputs_with(Commitments(book(reserved("m5.2xlarge", 1, ZONE))), 1)
    changed = replace(known.snapshot, nodeoverlays=(overlay(priceAdjustment="-10%"),))
    (node,) = decide(replace(known, snapshot=changed)).nodes
    assert node.request.cheapest.commitment
    assert not node.request.is_overlaid
    assert node.price_hourly_usd == 0
    assert node.claim.price_hourly_usd == pytest.approx(M5)
    assert PRICE_APPLIED not in node.claim.annotations


def test_no_more_is_planned_on_commitments_than_is_left_and_the_rest_is_spot() -> None:
    result = decided(plan("m5", 0.5, 0.4, "m5"), count=5)  # 0.23 an hour each
    assert committed(result) == 2
    assert {node.claim.capacity_type for node in result.nodes if node.price_hourly_usd} == {SPOT}
    assert 0 < result.bound_hourly_usd <= result.price_hourly_usd


def test_a_commitment_that_pays_for_a_part_is_used_where_the_rest_costs_less_than_the_alternative() -> None:
    only = Commitments(book(plan("m5", 0.2, 0.4, "m5")))  # 87 % of an m5.2xlarge
    (node,) = decide(inputs_with(only, 1, capacity=(ON_DEMAND,))).nodes
    assert node.request.cheapest.instance_type == "m5.2xlarge"
    assert node.price_hourly_usd == pytest.approx(M5 * (1 - 0.2 / (M5 * 0.6)), rel=0.01)


def test_what_runs_elsewhere_in_the_account_uses_commitments_up() -> None:
    one = plan("m5", 0.5, 0.4, "m5")
    assert committed(decided(one, count=2, running_outside={("m5.2xlarge", ZONES[1]): 1})) == 1
    assert committed(decided(one, count=2, running_outside={("m5.2xlarge", ZONES[1]): 2})) == 0


def test_what_another_cluster_has_reported_since_uses_commitments_up() -> None:
    found = Commitments(book(plan("m5", 0.5, 0.4, "m5"))).reporting("shop", {("m5.2xlarge", ZONE): 2}, NOW)
    assert committed(decide(inputs_with(found, 2))) == 0


def test_a_zonal_reservation_is_used_in_its_zone() -> None:
    result = decided(reserved("m5.2xlarge", 1, ZONES[1]), count=2)
    zones = [node.request.cheapest.zone for node in result.nodes if node.request.cheapest.commitment]
    assert zones == [ZONES[1]]


def test_a_spot_nodepool_takes_nothing_from_commitments() -> None:
    found = Commitments(book(plan("all", 5, 0.3)))
    (node,) = decide(inputs_with(found, 1, capacity=(SPOT,))).nodes
    assert node.claim.capacity_type == SPOT


def test_commitments_that_are_used_up_change_no_plan() -> None:
    one = plan("m5", 0.2, 0.4, "m5")
    used_up = Commitments(book(one, running_outside={("m5.2xlarge", ZONE): 3}))
    without = decide(inputs_with(Commitments(book()), 3))
    assert plan_item(decide(inputs_with(used_up, 3))) == plan_item(without)


def test_a_decision_on_commitments_can_be_replayed_from_its_record() -> None:
    given = inputs_with(Commitments(book(plan("m5", 0.5, 0.4, "m5"))), 3)
    written = record(given, decide(given), "digest", {})
    read = inputs_of(written, given.snapshot, given.catalog)
    assert read.ledger.commitments.book.commitments == given.ledger.commitments.book.commitments
    assert replay(written, given.snapshot, given.catalog) == canonical(written["plan"])


def test_a_cluster_that_comes_second_decides_again() -> None:
    first, second = (DynamoCommitments(table, "t") for table in [FakeTable()] * 2)
    first.keep(book(plan("m5", 0.5, 0.4, "m5")))
    mine, theirs = (inputs_with(store.load(), 2) for store in (first, second))
    claim_commitments(first, mine, decide(mine).nodes, NOW)
    cluster = replace(theirs.ledger.cluster, name="second") if theirs.ledger.cluster else None
    theirs = replace(theirs, ledger=replace(theirs.ledger, cluster=cluster))
    with pytest.raises(Conflict, match="another cluster has used"):
        claim_commitments(second, theirs, decide(theirs).nodes, NOW)
    again = replace(theirs, ledger=replace(theirs.ledger, commitments=second.load()))
    assert committed(decide(again)) == 0


def test_ending_a_node_saves_nothing_while_a_commitment_would_be_idle_instead() -> None:
    usage = {("m5.2xlarge", ZONE): 3.0}
    found = applied(book(plan("m5", 10, 0.4, "m5")).pools(NOW), usage, PRICES)
    nodes = [
        Running(name, "m5.2xlarge", ZONE, M5, share)
        for name, share in zip("abc", (0.9, 0.1, 0.5), strict=True)
    ]
    assert set(marginal_prices(nodes, found).values()) == {0.0}


def test_beyond_commitments_the_least_used_nodes_are_those_that_can_be_saved() -> None:
    usage = {("m5.2xlarge", ZONE): 3.0}
    found = applied(book(plan("m5", 2 * M5 * 0.6, 0.4, "m5")).pools(NOW), usage, PRICES)
    nodes = [
        Running(name, "m5.2xlarge", ZONE, M5, share)
        for name, share in zip("abc", (0.9, 0.1, 0.5), strict=True)
    ]
    prices = marginal_prices(nodes, found)
    assert prices["b"] == pytest.approx(M5, rel=1e-3)
    assert prices["a"] + prices["c"] == pytest.approx(0, abs=1e-3)


def test_a_node_that_the_usage_does_not_count_saves_nothing() -> None:
    found = applied((), {("m5.2xlarge", ZONE): 3.0}, PRICES)
    other = Running("other", "c5.2xlarge", ZONE, M5, 0.5)
    assert marginal_prices([other], found) == {"other": 0.0}


def moves_with(commitments: Commitments) -> list[str]:
    """Return the sources of moves of one half-used on-demand node, in a NodePool that may buy spot."""
    given = fleet(
        [worker("a", "m5.2xlarge", capacity_type=ON_DEMAND, cpu="7900m", memory="30Gi")],
        running(BIG, {"a": 1}),
    )
    given = replace(given, ledger=replace(given.ledger, commitments=commitments))
    return [name for one in propose(given).proposals for name in one.sources]


def test_a_node_that_commitments_pay_for_is_not_moved_to_spot() -> None:
    assert moves_with(Commitments(book())) == ["claim-a"]
    assert moves_with(Commitments(book(plan("m5", 1, 0.4, "m5")))) == []


def test_a_node_that_nothing_pays_for_is_moved_onto_unused_commitments() -> None:
    given = Commitments(book(plan("c5", 1, 0.4, "c5")))
    assert moves_with(given) == ["claim-a"]


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        (
            '{"listed": [{"kind": "computeSavingsPlan", "hourly": -1, "discount": 0.3, "ends": "2027-01-01T00:00Z"}]}',
            "commitment 1: hourly is -1: write the hourly commitment in USD, above 0",
        ),
        ('{"listed": [{"kind": "computeSavingPlan"}]}', "did you mean 'computeSavingsPlan'?"),
        (
            (
                '{"listed": [{"kind": "regionalReservedInstances", "instanceType": "m5.large", "count": 1,'
                ' "currency": "EUR", "ends": "2027-01-01T00:00:00Z"}]}'
            ),
            "currency is 'EUR': write it in USD",
        ),
        (
            '{"listed": [{"kind": "regionalReservedInstances", "instanceType": "m5", "count": 1, "ends": "soon"}]}',
            "instanceType is 'm5': write an instance type such as m5.large",
        ),
        *(
            (
                (
                    '{"listed": [{"kind": "zonalReservedInstances", "instanceType": "m5.large", "count": 1,'
                    f' "zone": "{place}", "ends": "2027-01-01T00:00:00Z"}}]}}'
                ),
                f"zone is '{place}': write the name of a zone such as us-east-1a",
            )
            for place in ("eu-west-1", "use1-az6")
        ),
        ('{"share": 2}', "share: expected a number above 0 and at most 1"),
        ('{"payer": 1}', "payer: unknown"),
    ],
)
def test_a_wrong_setting_is_reported(written: str, reported: str) -> None:
    with pytest.raises(ValueError, match=reported.replace("?", r"\?")):
        parse_commitment_settings(written)
