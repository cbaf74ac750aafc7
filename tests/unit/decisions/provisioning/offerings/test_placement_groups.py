"""Placement groups in plans: zones, the limit of seven, partitions, labels, launch templates and drift."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import moto
import pytest

from nodesmith.adapters.ec2.fleetanswers import fleet_errors, shortfalls
from nodesmith.decisions.disruption.drift import drifting
from nodesmith.decisions.provisioning.decide import decide
from nodesmith.decisions.provisioning.plan import Plan
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import supports
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, PARTITION, PLACEMENT_GROUP
from nodesmith.model.ec2.launches import LaunchRequest, OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.nodeclasses.status import PlacementGroup
from tests import builders
from tests.builders import NOW, ZONES

A, B, C = ZONES
GROUP = "pg-0123456789abcdef0"
SELECTOR: dict[str, Any] = {"placementGroupSelector": {"name": "training"}}
SMALL = builders.expression(INSTANCE_TYPE, "In", "m5.large")


def group(strategy: str, partitions: int = 0, **instances: int) -> PlacementGroup:
    there = tuple((f"us-east-1{letter}", count) for letter, count in sorted(instances.items()))
    return PlacementGroup(GROUP, "training", strategy, partitions, there)


def planned(
    of: PlacementGroup | None, pods: Any, *, claims: Any = (), requirements: Any = (SMALL,), **known: Any
) -> Plan:
    status = builders.nodeclass_status(placement_group=of)
    pool = builders.nodepool_manifest(requirements=[*builders.EXPRESS, *requirements])
    spec: dict[str, Any] = SELECTOR if of else {}
    nodeclass = builders.nodeclass_manifest(**spec)
    seen = builders.snapshot(pods=pods, nodepools=(pool,), nodeclasses=(nodeclass,))
    ledger = builders.ledger(nodeclasses={"default": status}, claims=tuple(claims), **known)
    return decide(builders.inputs(snapshot=seen, ledger=ledger))


def zones(plan: Plan) -> Counter[str]:
    found = Counter[str]()
    for node in plan.nodes:
        asked = {row.zone for row in node.request.overrides}
        assert len(asked) == 1, "the zone of a node in a counted group is settled"
        found.update(asked)
    return found


def one_a_node(count: int, **spec: Any) -> Any:
    return builders.pods(builders.shape(cpu="1500m", **spec), count)


def test_a_spread_group_gets_seven_nodes_in_a_zone_at_most() -> None:
    plan = planned(group("spread"), one_a_node(25))
    assert zones(plan) == {A: 7, B: 7, C: 7}
    ((left,)) = plan.unplaced
    assert len(left.pods) == 4
    assert "placement group training" in left.reason


def test_nodepools_share_the_room_of_a_spread_group() -> None:
    status = builders.nodeclass_status(placement_group=group("spread", a=5, b=7, c=7))
    pools = [
        builders.nodepool_manifest(team, requirements=[*builders.EXPRESS, SMALL], labels={"team": team})
        for team in ("red", "blue")
    ]
    pods = [pod for team in ("red", "blue") for pod in one_a_node(2, app=team, nodeSelector={"team": team})]
    seen = builders.snapshot(
        pods=pods, nodepools=pools, nodeclasses=(builders.nodeclass_manifest(**SELECTOR),)
    )
    ledger = builders.ledger(nodeclasses={"default": status})
    plan = decide(builders.inputs(snapshot=seen, ledger=ledger))
    assert zones(plan) == {A: 2}
    assert sum(len(each.pods) for each in plan.unplaced) == 2


def test_instances_that_are_there_or_on_their_way_count() -> None:
    coming = builders.claim("c", zone=B, labels={PLACEMENT_GROUP: GROUP}, created_at=NOW)
    plan = planned(group("spread", a=7, b=5), one_a_node(20), claims=[coming])
    assert zones(plan) == {B: 1, C: 7}


def test_a_full_spread_group_says_so() -> None:
    plan = planned(group("spread", a=7, b=7, c=8), one_a_node(1))
    assert plan.nodes == ()
    assert "placement group training has 7 instances in us-east-1a" in (plan.obstacles or {})["default"]


def test_nodes_of_a_cluster_group_are_in_the_zone_of_its_instances() -> None:
    assert set(zones(planned(group("cluster", b=1), one_a_node(5)))) == {B}
    there = builders.claim("c", zone=C, labels={PLACEMENT_GROUP: GROUP}, phase=Phase.INITIALIZED)
    assert set(zones(planned(group("cluster"), one_a_node(5), claims=[there]))) == {C}
    assert len(set(zones(planned(group("cluster"), one_a_node(5))))) == 1


def test_a_new_cluster_group_begins_in_a_zone_that_has_capacity() -> None:
    (first,) = zones(planned(group("cluster"), one_a_node(1)))
    only = [SMALL, builders.expression(CAPACITY_TYPE, "In", "on-demand")]
    key = OfferingKey("on-demand", "m5.large", first, GROUP)
    held = {key: Backoff(NOW + timedelta(minutes=3), 1, "none")}
    (second,) = zones(planned(group("cluster"), one_a_node(3), requirements=only, unavailable=held))
    assert second != first


def test_burstable_types_are_not_bought_for_a_cluster_group() -> None:
    burstable = builders.expression(INSTANCE_TYPE, "In", "t3.large", "c7i-flex.large")
    assert planned(group("spread"), one_a_node(1), requirements=[burstable]).nodes
    assert not planned(group("cluster"), one_a_node(1), requirements=[burstable]).nodes


def test_moto_agrees_which_types_cluster_groups_take() -> None:
    data = Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz"
    described = json.loads(gzip.decompress(data.read_bytes()))
    for name, facts in described.items():
        stated = facts["PlacementGroupInfo"]["SupportedStrategies"]
        for strategy in ("cluster", "spread", "partition"):
            assert supports(name, strategy) is (strategy in stated), name


def test_nodes_carry_karpenters_labels_and_their_templates_the_group() -> None:
    (node,) = planned(group("spread"), one_a_node(1)).nodes
    assert node.claim.labels[PLACEMENT_GROUP] == GROUP
    assert PARTITION not in node.claim.labels
    assert node.templates[0].data["Placement"] == {"GroupId": GROUP}
    (plain,) = planned(None, one_a_node(1)).nodes
    assert PLACEMENT_GROUP not in plain.claim.labels
    assert "Placement" not in plain.templates[0].data


def test_pods_spread_over_the_partitions_of_a_group() -> None:
    spread = builders.spread(PARTITION, hard=True)
    plan = planned(group("partition", 3), one_a_node(7, topologySpreadConstraints=spread))
    counts = Counter(node.claim.labels[PARTITION] for node in plan.nodes)
    assert sorted(counts.values()) == [2, 2, 3]
    for node in plan.nodes:
        number = int(node.claim.labels[PARTITION])
        assert node.templates[0].data["Placement"] == {"GroupId": GROUP, "PartitionNumber": number}


def test_a_pod_gets_the_partition_that_it_selects() -> None:
    (node,) = planned(group("partition", 5), one_a_node(1, nodeSelector={PARTITION: "4"})).nodes
    assert node.claim.labels[PARTITION] == "4"
    plan = planned(group("partition", 5), one_a_node(1, nodeSelector={PARTITION: "6"}))
    assert plan.nodes == ()


def test_nodes_of_pods_that_do_not_care_are_distributed_over_the_partitions() -> None:
    plan = planned(group("partition", 3), one_a_node(30))
    counts = Counter(node.claim.labels[PARTITION] for node in plan.nodes)
    assert set(counts) == {"1", "2", "3"}
    assert min(counts.values()) >= 4


@pytest.mark.parametrize("key", [PLACEMENT_GROUP, PARTITION])
def test_a_pod_that_selects_a_group_gets_no_node_outside_one(key: str) -> None:
    value = GROUP if key == PLACEMENT_GROUP else "1"
    assert planned(None, one_a_node(1, nodeSelector={key: value})).nodes == ()


def test_a_pod_that_selects_another_group_gets_no_node() -> None:
    assert planned(group("spread"), one_a_node(1, nodeSelector={PLACEMENT_GROUP: "pg-9"})).nodes == ()
    assert planned(group("spread"), one_a_node(1, nodeSelector={PLACEMENT_GROUP: GROUP})).nodes


def test_a_node_in_another_group_than_its_nodeclass_drifts() -> None:
    claim = builders.claim(
        zone=A, phase=Phase.INITIALIZED, labels={PLACEMENT_GROUP: GROUP}, instance_type="m5.large"
    )
    other = replace(group("spread"), id="pg-9")
    for of, expected in ((group("spread"), {}), (other, {claim.name: "PlacementGroupDrift"})):
        status = builders.nodeclass_status(placement_group=of)
        ledger = builders.ledger(nodeclasses={"default": status}, claims=(claim,))
        inputs = builders.inputs(ledger=ledger)
        found = drifting(inputs.snapshot, inputs.ledger, inputs.catalog, NOW)
        assert {name: drift.reason for name, drift in found.items()} == expected


def test_a_shortage_inside_a_group_closes_the_pool_for_the_group_only() -> None:
    key = OfferingKey("on-demand", "m5.large", A, GROUP)
    held = {replace(key, zone=zone): Backoff(NOW + timedelta(minutes=3), 1, "none") for zone in ZONES}
    only = [SMALL, builders.expression(CAPACITY_TYPE, "In", "on-demand")]

    def bought(of: PlacementGroup | None, unavailable: Any) -> int:
        return len(planned(of, one_a_node(1), requirements=only, unavailable=unavailable).nodes)

    assert bought(group("cluster"), held) == 0
    assert bought(None, held) == 1
    assert bought(replace(group("cluster"), id="pg-9"), held) == 1
    assert bought(group("cluster"), {replace(k, group=""): b for k, b in held.items()}) == 0


def test_a_full_spread_group_closes_every_type_of_the_zone_for_the_group() -> None:
    (node,) = planned(group("spread"), one_a_node(1), requirements=()).nodes
    request = node.request
    assert request.group == GROUP
    first = request.overrides[0]
    answer = {
        "Errors": [
            {
                "LaunchTemplateAndOverrides": {
                    "Overrides": {"InstanceType": first.instance_type, "AvailabilityZone": first.zone}
                },
                "ErrorCode": "InsufficientInstanceCapacity",
                "ErrorMessage": "Spread placement group training has reached its limit of 7 running instances.",
            }
        ]
    }
    short = {each.offering for each in shortfalls(fleet_errors(request, answer))}
    assert short == set(request.offerings())
    assert len(short) > 1
    assert LaunchRequest.from_item(request.claim, request.to_item()) == request


def test_a_new_cluster_group_is_not_begun_in_a_zone_that_is_shifted_away_from() -> None:
    first = zones(planned(group("cluster"), one_a_node(2)))
    (zone,) = first
    shift = ZonalShift(zone, "", NOW + timedelta(hours=1), "zonal shift")
    (other,) = zones(planned(group("cluster"), one_a_node(2), zonal_shifts=(shift,)))
    assert other != zone
