"""Static NodePools: how many nodes they lack and where, and which ones go when there are too many."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.expiration import expired
from nodesmith.decisions.provisioning import PlannedNode, replicas
from nodesmith.decisions.provisioning.nodepools.static import surplus
from nodesmith.model.apimachinery.labels import RESERVED, ZONE
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.provisioningrequests import Gang, GangStage
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, Reason, Stage
from nodesmith.model.policies import MinValuesPolicy
from tests import builders
from tests.builders import NOW

TYPES = [builders.expression("node.kubernetes.io/instance-type", "In", "m5.large", "m5.xlarge")]


def static(count: int, *, limit: int | None = None, **fields: Any) -> dict[str, Any]:
    pool = builders.nodepool_manifest(requirements=TYPES, **fields)
    pool["spec"]["replicas"] = count
    if limit is not None:
        pool["spec"]["limits"] = {"nodes": str(limit)}
    return pool


def planned(pool: dict[str, Any], *claims: NodeClaim, **ledger: Any) -> list[PlannedNode]:
    seen = builders.snapshot(nodepools=(pool,))
    nodes, refused = replicas(builders.inputs(snapshot=seen, ledger=builders.ledger(claims=claims, **ledger)))
    assert refused == {}
    return nodes


def zones(nodes: list[PlannedNode]) -> Counter[str]:
    return Counter(node.claim.requirements.settled[ZONE] for node in nodes)


def running(name: str, zone: str = builders.ZONES[0], **fields: Any) -> NodeClaim:
    known = {"node_name": f"node-{name}", "zone": zone, "instance_id": f"i-{name}"}
    return replace(builders.claim(name, phase=Phase.INITIALIZED), **(known | fields))


def test_it_gets_as_many_nodes_as_it_asks_for_spread_over_all_zones() -> None:
    nodes = planned(static(len(builders.ZONES) * 2))
    assert set(zones(nodes)) == set(builders.ZONES)
    assert set(zones(nodes).values()) == {2}
    assert len({node.claim.name for node in nodes}) == len(nodes)


def test_each_node_is_asked_for_in_its_zone_only_of_one_way_to_pay() -> None:
    for node in planned(static(3)):
        assert {override.zone for override in node.request.overrides} == {
            node.claim.requirements.settled[ZONE]
        }
        assert {override.instance_type for override in node.request.overrides} == {"m5.large", "m5.xlarge"}


def test_min_values_keep_no_node_back_and_are_lowered_to_what_there_is() -> None:
    pool = static(1)
    (types,) = pool["spec"]["template"]["spec"]["requirements"]
    types |= {"minValues": 2}
    in_one_family = builders.expression("karpenter.k8s.aws/instance-family", "In", "m5") | {"minValues": 1}
    pool["spec"]["template"]["spec"]["requirements"] = [types, in_one_family]
    (node,) = planned(pool)
    lowered = node.claim.requirements["node.kubernetes.io/instance-type"].min_values
    assert lowered == len({override.instance_type for override in node.request.overrides})


def test_nodes_that_are_there_or_on_their_way_count_and_the_emptiest_zones_are_filled() -> None:
    there = [running("a"), replace(running("b"), phase=Phase.LAUNCHED, node_name="")]
    nodes = planned(static(4), *there)
    assert len(nodes) == 2
    assert builders.ZONES[0] not in zones(nodes)


def test_a_node_that_is_going_is_replaced_and_one_that_was_given_up_as_well() -> None:
    going = running("a").terminating("Deleted", "by hand", NOW)
    failed = replace(running("b"), phase=Phase.GIVEN_UP)
    assert len(planned(static(1), going, failed)) == 1


def test_a_node_and_what_replaces_it_count_as_one_until_its_end_begins_and_what_replaces_it_from_then_on() -> (
    None
):
    old, new = running("a"), running("b")
    move = Move("m", Reason.DRIFTED, (old.name,), Stage.ENDING, NOW, NOW, replacements=(new.name,))
    ending = old.terminating("Drifted", "NodePoolDrifted", NOW)
    for source in (old, ending):
        assert planned(static(1), source, new, moves=(move,)) == []
    assert planned(static(1), new, moves=(move,)) == []
    assert len(planned(static(2), ending, new, moves=(move,))) == 1


def test_its_limit_counts_nodes_that_are_going() -> None:
    going = running("a").terminating("Deleted", "by hand", NOW)
    assert planned(static(3, limit=1), going) == []
    assert len(planned(static(3, limit=2), going)) == 1


def test_a_limit_below_the_replicas_is_told_unless_nodes_that_end_or_are_replaced_make_room() -> None:
    def surplus_reasons(*claims: NodeClaim, **ledger: Any) -> dict[str, str]:
        seen, known = builders.snapshot(nodepools=(static(3, limit=2),)), {"claims": claims, **ledger}
        nodes, refused = replicas(builders.inputs(snapshot=seen, ledger=builders.ledger(**known)))
        assert nodes == []
        return refused

    going = running("b").terminating("Deleted", "by hand", NOW)
    move = Move("m", Reason.DRIFTED, ("a",), Stage.REPLACING, NOW, NOW, replacements=("b",))
    why = "it has 2 nodes and spec.replicas is 3, but limits.nodes is 2: raise limits.nodes, or lower spec.replicas"
    assert surplus_reasons(running("a"), running("b")) == {"default": why}
    assert surplus_reasons(running("a"), going) == {}
    assert surplus_reasons(running("a"), running("b"), moves=(move,)) == {}


@pytest.mark.parametrize("count", [0, 2])
def test_with_enough_nodes_nothing_is_bought(count: int) -> None:
    assert planned(static(count), running("a"), running("b")) == []


def test_a_zone_without_capacity_is_left_out_until_it_has_some() -> None:
    closed = {
        OfferingKey(paid, kind, builders.ZONES[0]): Backoff(NOW + timedelta(minutes=3), 1)
        for kind in ("m5.large", "m5.xlarge")
        for paid in ("spot", "on-demand")
    }
    assert builders.ZONES[0] not in zones(planned(static(6), unavailable=closed))


def test_one_that_may_not_launch_says_why_and_others_go_on() -> None:
    bad = static(2, name="bad", nodeclass="missing")
    seen = builders.snapshot(nodepools=(bad, static(1)))
    nodes, refused = replicas(builders.inputs(snapshot=seen))
    assert [node.claim.nodepool for node in nodes] == ["default"]
    assert "EC2NodeClass 'missing' is missing" in refused["bad"]


def test_one_that_is_being_deleted_gets_no_more() -> None:
    pool = static(2)
    pool["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
    assert planned(pool) == []


def ended(pool: dict[str, Any], *claims: NodeClaim, **snapshot: Any) -> list[str]:
    seen = builders.snapshot(nodepools=(pool,), **snapshot)
    return [end.claim.name for end in surplus(claims, seen, parsed_nodepools((pool,)), NOW)]


def test_with_too_many_those_go_first_that_are_no_nodes_yet_then_empty_ones() -> None:
    busy, empty = running("busy"), running("empty")
    coming = replace(running("coming"), phase=Phase.LAUNCHED, node_name="")
    pods = builders.bind(builders.shape("1"), "node-busy")
    nodes = tuple(builders.node(f"node-{name}") for name in ("busy", "empty"))
    assert ended(static(2), busy, empty, coming, pods=pods, nodes=nodes) == ["coming"]
    assert ended(static(1), busy, empty, coming, pods=pods, nodes=nodes) == ["coming", "empty"]
    assert ended(static(3), busy, empty, coming, pods=pods, nodes=nodes) == []


@pytest.mark.parametrize("asked", ["true", "2h"])
def test_whoever_asks_to_be_left_alone_goes_last_and_few_pods_before_many(asked: str) -> None:
    shape = builders.shape("1")
    calm = replace(shape, annotations={"karpenter.sh/do-not-disrupt": asked})
    pods = [
        *builders.bind(calm, "node-calm", 1),
        *builders.bind(shape, "node-many", 5),
        *builders.bind(shape, "node-few", 2),
    ]
    nodes = tuple(builders.node(f"node-{name}") for name in ("calm", "many", "few"))
    claims = [running(name) for name in ("calm", "many", "few")]
    assert ended(static(1), *claims, pods=pods, nodes=nodes) == ["few", "many"]


def test_of_equals_the_fullest_zone_gives_first_so_that_the_spread_stays_even() -> None:
    first, second = builders.ZONES[:2]
    claims = [running("a1", first), running("a2", first), running("b1", second), running("a3", first)]
    kept = {"a1", "a2", "a3", "b1"} - set(ended(static(2), *claims))
    assert "b1" in kept
    assert len(kept) == 2


def test_a_node_with_room_for_a_provisioning_request_goes_after_empty_nodes_and_those_with_pods() -> None:
    gang = Gang("uid", "default/job", GangStage.PROVISIONED, NOW, NOW, places={"booked": (1,)})
    known = Ledger(gangs=(replace(gang, booked_until=NOW + timedelta(minutes=10)),))
    pods = builders.bind(builders.shape("1"), "node-busy")
    nodes = tuple(builders.node(f"node-{name}") for name in ("booked", "busy", "empty"))
    claims = [running("booked"), running("busy"), running("empty")]
    seen = builders.snapshot(nodepools=(static(1),), pods=pods, nodes=nodes)
    pools = parsed_nodepools(seen.nodepools)
    ends = surplus(claims, seen, pools, NOW, booked=known.booked(NOW))
    assert [end.claim.name for end in ends] == ["empty", "busy"]


def test_a_node_that_ends_for_another_reason_is_no_surplus() -> None:
    old, young = (
        replace(running("old"), expire_after="1m", created_at=NOW - timedelta(hours=1)),
        running("young"),
    )
    seen = builders.snapshot(nodepools=(static(1),))
    pools = parsed_nodepools(seen.nodepools)
    ends = expired(Ledger(claims=(old, young)), seen, pools, NOW)
    assert [end.claim.name for end in ends] == ["old"]
    assert surplus([old, young], seen, pools, NOW, ends) == []


def test_of_equals_a_node_in_reserved_capacity_stays_since_it_is_paid_for_anyway() -> None:
    new = replace(running("a", created_at=NOW), capacity_type=RESERVED)
    paid = [running(name, created_at=NOW - timedelta(hours=1)) for name in ("b", "c")]
    assert ended(static(1), new, *paid) == ["b", "c"]


def test_a_nodepool_that_follows_pods_has_no_surplus_and_ending_nodes_are_none() -> None:
    assert ended(builders.nodepool_manifest(), running("a")) == []
    assert ended(static(1), running("a"), running("b").terminating("Expired", "old", NOW)) == []


def test_the_end_says_why() -> None:
    pool = static(0)
    (end,) = surplus([running("a")], builders.snapshot(nodepools=(pool,)), parsed_nodepools((pool,)), NOW)
    assert (end.claim.cause, end.claim.message) == (
        "ScaledDown",
        "NodePool default has 1 nodes and replicas is 0",
    )


def flexible(*types: str, least: int) -> dict[str, Any]:
    listed = builders.expression("node.kubernetes.io/instance-type", "In", *types, minValues=least)
    pool = static(2)
    pool["spec"]["template"]["spec"]["requirements"] = [listed]
    return pool


def refusal(pool: dict[str, Any], **settings: Any) -> str:
    inputs = builders.inputs(snapshot=builders.snapshot(nodepools=(pool,)))
    nodes, refused = replicas(replace(inputs, settings=replace(inputs.settings, **settings)))
    assert bool(nodes) is not bool(refused)
    return refused.get("default", "")


def test_no_node_is_bought_with_fewer_values_than_min_values() -> None:
    few = flexible("m5.large", "m5.large", "no.such", least=3)
    assert refusal(few) == (
        "minValues requirement is not met for label(s) node.kubernetes.io/instance-type 1 of 3"
    )
    assert refusal(few, min_values_policy=MinValuesPolicy.BEST_EFFORT) == ""


def test_each_node_may_become_as_many_types_as_min_values_say_also_of_bare_metal() -> None:
    for node in planned(flexible("m5.large", "m5.metal", "c5.metal", least=2)):
        types = {override.instance_type for override in node.request.overrides}
        assert "m5.large" in types
        assert len(types) == 2


def test_min_values_of_zones_do_not_count_since_each_node_gets_its_zone() -> None:
    pool = static(3)
    pool["spec"]["template"]["spec"]["requirements"].append(builders.expression(ZONE, "Exists", minValues=3))
    assert len(zones(planned(pool))) == 3
