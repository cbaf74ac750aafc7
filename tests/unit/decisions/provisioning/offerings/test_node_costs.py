"""What nodes cost besides their price: surcharges of NodePools and DaemonSets, and the objective LeastNodes."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.decisions.provisioning.nodepools.onsale import considered
from nodesmith.decisions.provisioning.plan import plan_item
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.kubernetes.shapereading import parse_shape
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.reduction.pods import reduce_daemonset
from nodesmith_formats.decisions.summaries import price_and_bound
from tests.builders import bind, expression, inputs, nodepool_manifest, pods, shape, snapshot
from tests.objects import fleets

ONE = shape("900m", "1Gi")
SURCHARGE, OBJECTIVE = "nodesmith.dev/node-surcharge-hourly", "nodesmith.dev/objective"


def pool(name: str = "default", *types: str, weight: int | None = None, **annotations: str) -> dict[str, Any]:
    """Return a NodePool with on-demand nodes of these types; `surcharge` and `objective` are its annotations."""
    requirements = [expression("karpenter.sh/capacity-type", "In", "on-demand")]
    if types:
        requirements.append(expression("node.kubernetes.io/instance-type", "In", *types))
    made = nodepool_manifest(name, requirements=requirements, weight=weight)
    keys = {"surcharge": SURCHARGE, "objective": OBJECTIVE}
    made["metadata"]["annotations"] = {keys[key]: value for key, value in annotations.items()}
    return made


def daemonset(surcharge: str | None, **spec: Any) -> Shape:
    """Return the pod of a DaemonSet that has this surcharge, as observation reads it."""
    annotations = {} if surcharge is None else {SURCHARGE: surcharge}
    manifest = {
        "metadata": {"namespace": "kube-system", "name": "agent", "annotations": annotations},
        "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [], **spec}}},
    }
    return parse_shape(reduce_daemonset(manifest))


def decided(of: Shape, count: int, *pools: dict[str, Any], daemonsets: tuple[Shape, ...] = ()) -> Plan:
    known = NodeSettings(fragility_tolerance=0.0)
    there = snapshot(pods=pods(of, count), nodepools=pools, daemonsets=daemonsets)
    return decide(inputs(snapshot=there, settings=known))


def types_of(plan: Plan) -> list[str]:
    return sorted(node.request.cheapest.instance_type for node in plan.nodes)


class TestADaemonSetsSurcharge:
    def test_makes_fewer_nodes_worth_their_price(self) -> None:
        sizes = ("m5.large", "m5.4xlarge")
        plain = decided(ONE, 8, pool("default", *sizes), daemonsets=(daemonset(None),))
        dear = decided(ONE, 8, pool("default", *sizes), daemonsets=(daemonset("0.2"),))

        assert len(plain.nodes) > len(dear.nodes) == 1
        assert dear.surcharge_hourly_usd == pytest.approx(0.2)
        assert dear.price_hourly_usd + 0.2 == pytest.approx(dear.cost_bound_hourly_usd, rel=0.01)

    def test_turns_pods_away_from_types_that_it_runs_on(self) -> None:
        on_amd = daemonset("1", nodeSelector={"karpenter.k8s.aws/instance-cpu-manufacturer": "amd"})

        plan = decided(ONE, 1, pool("default", "m5.large", "m5a.large"), daemonsets=(on_amd,))
        free = decided(ONE, 1, pool("default", "m5.large", "m5a.large"))

        assert (types_of(plan), types_of(free)) == (["m5.large"], ["m5a.large"])
        assert plan.surcharge_hourly_usd == 0

    def test_that_cannot_be_read_is_reported_and_counts_as_none(self) -> None:
        plan = decided(ONE, 1, pool(), daemonsets=(daemonset("0,05"),))

        assert plan.surcharge_hourly_usd == 0
        (problem,) = plan.problems
        assert problem.startswith(
            f"DaemonSet/kube-system/agent: metadata.annotations[{SURCHARGE}] is '0,05': must be USD"
        )
        assert problem.endswith("such as 0.05, with a point: did you mean '0.05'?; treated as 0")

    def test_adds_to_that_of_the_nodepool_and_is_explained(self) -> None:
        there = snapshot(
            pods=pods(ONE, 1), nodepools=(pool(surcharge="0.05"),), daemonsets=(daemonset("0.02"),)
        )

        assert decide(inputs(snapshot=there)).nodes[0].surcharge_hourly_usd == pytest.approx(0.07)
        (reported,) = considered(inputs(snapshot=there))
        assert [cost.partition(" (")[0] for cost in reported.costs][:1] == [
            "each node costs $0.0500/hour besides"
        ]
        assert reported.costs[1].startswith("DaemonSet kube-system/agent adds $0.0200/hour to each node of ")


def test_a_plan_with_surcharges_says_what_it_costs_with_them_and_what_it_costs_at_least() -> None:
    plan = decided(ONE, 1, pool("default", "m5.large", surcharge="1"))

    assert (
        price_and_bound(plan_item(plan))
        == "$0.0960/hour, the cheapest possible: no nodes for these pods cost less; "
        "$1.0960/hour with surcharges of $1.0000/hour, at least $1.0960/hour for these pods"
    )


def test_a_surcharge_is_no_part_of_limits_in_dollars() -> None:
    limited = pool("default", "m5.large", surcharge="5")
    limited["metadata"]["annotations"]["nodesmith.dev/limit-usd-per-hour"] = "0.1"

    assert len(decided(ONE, 1, limited).nodes) == 1


class TestLeastNodes:
    SIZES = ("m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge", "m5.8xlarge", "c5.9xlarge")

    def test_buys_as_few_nodes_as_possible_and_of_those_the_cheapest(self) -> None:
        plan = decided(ONE, 12, pool("default", *self.SIZES, objective="LeastNodes"))

        assert types_of(plan) == ["m5.4xlarge"], "the cheapest that holds all of them"
        assert (len(plan.nodes), plan.fewest) == (1, 1)
        assert plan.bound_hourly_usd == pytest.approx(plan.price_hourly_usd)

    def test_proves_number_and_price_for_plans_of_several_nodes(self) -> None:
        plan = decided(ONE, 60, pool("default", *self.SIZES, objective="LeastNodes"))

        assert len(plan.nodes) == plan.fewest == 2
        assert plan.bound_hourly_usd <= plan.price_hourly_usd <= 1.02 * plan.bound_hourly_usd
        assert "; objective LeastNodes: 2 nodes, the fewest possible" in price_and_bound(plan_item(plan))

    def test_holds_for_all_nodepools_of_the_weight_and_is_explained(self) -> None:
        few = pool("a", "m5.large", objective="LeastNodes")
        there = snapshot(pods=pods(ONE, 8), nodepools=(few, pool("b", "m5.large", "m5.4xlarge")))

        plan = decide(inputs(snapshot=there))

        assert types_of(plan) == ["m5.4xlarge"]
        reported = {each.nodepool: each.costs for each in considered(inputs(snapshot=there))}
        assert reported["a"] == ("plans have as few nodes as possible (nodesmith.dev/objective)",)
        assert "of NodePool a, which has the same weight" in reported["b"][0]

    def test_leaves_no_pod_without_a_node_at_a_limit(self) -> None:
        limited = pool("default", *self.SIZES, objective="LeastNodes")
        limited["spec"]["limits"] = {"cpu": "8"}

        plan = decided(ONE, 7, limited)

        assert (len(plan.nodes), plan.unplaced) == (1, ())

    def test_says_nothing_about_a_plan_without_it(self) -> None:
        item = plan_item(decided(ONE, 12, pool("default", *self.SIZES)))

        assert {"fewestNodes", "surchargeHourlyUsd", "costBoundHourlyUsd"}.isdisjoint(item)

    def test_a_misspelt_objective_is_reported(self) -> None:
        plan = decided(ONE, 1, pool(objective="least-nodes"))

        (problem,) = plan.problems
        assert "must be LowestPrice or LeastNodes" in problem
        assert "treated as LowestPrice" in problem
        assert plan.fewest == 0


class TestMoves:
    def test_nodes_are_joined_if_that_saves_the_surcharge_of_a_daemonset(self) -> None:
        pair = [fleets.worker(name, "m5.large", cpu="2", memory="8Gi") for name in ("a", "b")]

        def moves(surcharge: str | None) -> list[Any]:
            agent = daemonset(surcharge)
            work = fleets.running(shape("1200m", "1Gi"), {"a": 1, "b": 1})
            there = [*work, *bind(agent, "a", 1), *bind(agent, "b", 1)]
            sold = consolidated(
                "m5.large", "m5.xlarge"
            )  # the larger one costs as much as both nodes together
            return list(propose(fleets.fleet(pair, there, pools=[sold], daemonsets=(agent,))).proposals)

        assert not moves(None)
        (move,) = moves("0.5")
        assert len(move.replacements) == 1
        assert move.saving_hourly_usd == pytest.approx(0.5)

    def test_a_node_is_not_replaced_by_more_nodes_where_few_are_wanted(self) -> None:
        big = fleets.worker("a", "m5.8xlarge", cpu="32", memory="128Gi")

        def moves(**annotations: str) -> list[Any]:
            there = fleets.running(shape("1500m", "1Gi"), {"a": 2})
            sold = consolidated("m5.large", "m5.8xlarge", **annotations)
            return list(propose(fleets.fleet([big], there, pools=[sold])).proposals)

        assert [len(move.replacements) for move in moves()] == [2]
        assert not moves(objective="LeastNodes")


def consolidated(*types: str, **annotations: str) -> dict[str, Any]:
    """Return a NodePool with these types whose nodes may be consolidated at once."""
    made = pool("default", *types, weight=None, **annotations)
    made["spec"]["disruption"] = fleets.pool()["spec"]["disruption"]
    return made
