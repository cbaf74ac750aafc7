"""What counts besides the price of an instance: surcharges of a NodePool, fragility, BestEffort minValues."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.policies import MinValuesPolicy, NodeSettings
from tests.builders import expression, inputs, nodepool_manifest, pods, shape, snapshot, spread

ONE = shape("900m", "1Gi")


def decided(count: int, *pools: dict[str, Any], of: Shape = ONE, **settings: Any) -> Plan:
    known = NodeSettings(**{"fragility_tolerance": 0.0, **settings})
    return decide(inputs(snapshot=snapshot(pods=pods(of, count), nodepools=pools), settings=known))


def surcharged(price: str, name: str = "default") -> dict[str, Any]:
    pool = nodepool_manifest(name)
    pool["metadata"]["annotations"] = {"nodesmith.dev/node-surcharge-hourly": price}
    return pool


class TestASurcharge:
    def test_makes_fewer_and_larger_nodes_worth_their_price(self) -> None:
        plain, dear = decided(24, nodepool_manifest()), decided(24, surcharged("1.0"))

        assert len(dear.nodes) == 1
        assert len(dear.nodes) <= len(plain.nodes)
        assert sum(len(node.claim.nominated) for node in dear.nodes) == 24

    def test_is_no_part_of_the_price_or_of_its_bound(self) -> None:
        dear = decided(24, surcharged("1.0"))

        assert dear.price_hourly_usd < 1.0
        assert 0 < dear.bound_hourly_usd <= dear.price_hourly_usd

    def test_turns_pods_to_another_nodepool_of_the_same_weight(self) -> None:
        plan = decided(4, surcharged("1.0", "a"), nodepool_manifest("b"))

        assert {node.claim.nodepool for node in plan.nodes} == {"b"}


class TestFragility:
    def test_pods_of_a_shape_do_not_share_one_node_if_two_nodes_cost_the_same(self) -> None:
        fragile = decided(8, nodepool_manifest())
        sturdy = decided(8, nodepool_manifest(), fragility_tolerance=0.01)

        assert max(len(node.claim.nominated) for node in sturdy.nodes) <= 4
        assert sturdy.price_hourly_usd <= fragile.price_hourly_usd * 1.01
        assert not sturdy.unplaced

    def test_pods_of_a_shape_share_one_node_if_two_nodes_cost_more(self) -> None:
        tiny = shape("100m", "64Mi")  # a pair fills a quarter of the smallest node for sale

        assert len(decided(2, nodepool_manifest(), of=tiny, fragility_tolerance=0.01).nodes) == 1
        assert len(decided(2, nodepool_manifest(), of=tiny, fragility_tolerance=1.5).nodes) == 2

    def test_a_single_pod_is_not_affected(self) -> None:
        assert len(decided(1, nodepool_manifest(), fragility_tolerance=0.5).nodes) == 1

    def test_spreading_over_nodes_leaves_out_no_pod_at_a_limit(self) -> None:
        limited = nodepool_manifest(limits={"nodes": "1"})

        plan = decided(8, limited, fragility_tolerance=0.5)

        assert (len(plan.nodes), plan.unplaced) == (1, ())


class TestFewNodes:
    @pytest.mark.parametrize("count", [40, 45, 100, 130, 260, 600])
    def test_a_plan_may_have_fewer_nodes_for_a_little_more_money(self, count: int) -> None:
        alike = shape("385m", "700Mi")
        cheap = decided(count, nodepool_manifest(), of=alike)
        few = decided(count, nodepool_manifest(), of=alike, few_nodes_tolerance=0.25)

        assert len(few.nodes) < len(cheap.nodes)
        assert cheap.price_hourly_usd <= few.price_hourly_usd <= cheap.price_hourly_usd * 1.25
        assert 0 < few.bound_hourly_usd <= cheap.price_hourly_usd
        assert sum(len(node.claim.nominated) for node in few.nodes) == count

    def test_a_plan_keeps_its_nodes_where_fewer_cost_too_much(self) -> None:
        alike = shape("385m", "700Mi")

        assert len(decided(40, nodepool_manifest(), of=alike, few_nodes_tolerance=0.01).nodes) == 2

    def test_a_plan_keeps_few_nodes_although_pods_with_preferences_have_it_compared_with_others(self) -> None:
        spread_out = shape(
            "385m", "700Mi", app="other", topologySpreadConstraints=spread(hard=False, app="other")
        )
        wanted = [*pods(shape("385m", "700Mi"), 55), *pods(spread_out, 1)]
        settings = NodeSettings(fragility_tolerance=0.0, few_nodes_tolerance=0.25)

        plan = decide(
            inputs(snapshot=snapshot(pods=wanted, nodepools=[nodepool_manifest()]), settings=settings)
        )

        assert len(plan.nodes) == 2, "five nodes cost 2 % less"
        assert plan.unplaced == ()

    def test_fewer_nodes_leave_out_no_pod_at_a_limit(self) -> None:
        limited = nodepool_manifest(limits={"cpu": "16"})

        plan = decided(40, limited, of=shape("385m", "700Mi"), few_nodes_tolerance=0.25)

        assert plan.unplaced == ()


@pytest.mark.parametrize(("policy", "nodes"), [(MinValuesPolicy.STRICT, 0), (MinValuesPolicy.BEST_EFFORT, 1)])
def test_a_node_with_too_few_values_is_bought_only_where_best_effort_is_enough(
    policy: MinValuesPolicy, nodes: int
) -> None:
    picky = nodepool_manifest(
        requirements=(
            expression("node.kubernetes.io/instance-type", "In", "m5.large", "m5.xlarge", minValues=2),
        )
    )
    large = shape("3", "4Gi")  # only one of the two types holds it

    plan = decided(1, picky, of=large, min_values_policy=policy)

    assert len(plan.nodes) == nodes
    relaxed = [node.claim.annotations.get("karpenter.sh/nodeclaim-min-values-relaxed") for node in plan.nodes]
    assert relaxed == ["true"] * nodes
    reached = [node.claim.requirements["node.kubernetes.io/instance-type"].min_values for node in plan.nodes]
    assert reached == [1] * nodes
