"""What a cluster costs, would cost, and where the money is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.shadow.fleet import OTHERS
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.ledger.commitments import (
    NO_COMMITMENTS,
    Commitment,
    CommitmentBook,
    CommitmentKind,
    Commitments,
)
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.costs.commitments import with_commitments
from nodesmith_cli.costs.savings.analysis import Analysis, analysed, parsed_nodes, prepared
from nodesmith_cli.costs.savings.capacity import Parts, families, workload_of
from nodesmith_cli.costs.savings.fleet import with_accumulated_budgets
from nodesmith_cli.costs.savings.reading import Cluster, Usage
from nodesmith_cli.costs.savings.report import whole_percent
from tests import builders
from tests.builders import catalog
from tests.objects.savingsclusters import (
    budget,
    documents,
    karpenter,
    node,
    nodepool,
    pod,
    sparse,
    zone_spread,
)

AT = datetime(2026, 1, 10, tzinfo=UTC)
KEEP = {"karpenter.sh/do-not-disrupt": "true"}


def found(
    manifests: Iterable[Mapping[str, Any]], usage: Usage | None = None, paid: Commitments = NO_COMMITMENTS
) -> Analysis:
    cluster = Cluster(documents([dict(each) for each in manifests]))
    nodes, faults = parsed_nodes(cluster.of_kind("Node"))
    assert not faults
    ready = prepared(cluster, nodes, catalog(), NodeSettings(), AT)
    ready = replace(ready, inputs=with_commitments(ready.inputs, paid))
    return analysed(ready, usage or Usage({}, "not asked"))


def half_empty(**labels: str) -> list[dict[str, Any]]:
    """Return four m5.xlarge, each with one pod of half a core: one c or m large holds two or three of them."""
    nodes = [node(f"n-{n}", labels=labels) for n in range(4)]
    return [*nodes, *(pod(f"p-{n}", f"n-{n}") for n in range(4))]


def test_node_groups_without_nodepools_are_compared_with_assumed_ones() -> None:
    analysis = found(half_empty())
    assert analysis.now_hourly_usd == pytest.approx(4 * 0.192)
    assert analysis.are_assumed
    assert not analysis.whole.kept
    assert 0 < analysis.bound_hourly_usd <= analysis.whole.hourly_usd < 0.3
    assert analysis.moves.is_finished
    assert analysis.best_hourly_usd <= analysis.moves.hourly_usd < analysis.now_hourly_usd


def test_what_commitments_pay_for_costs_nothing_on_either_side() -> None:
    rates = FrozenMap({"m5.large": 57_600, "m5.xlarge": 115_200})
    kind, ends = CommitmentKind.EC2_INSTANCE, AT + timedelta(days=300)
    plan = Commitment("p", kind, 2 * 115_200, ends, "m5", rates=rates)  # two of the four nodes
    analysis = found(half_empty(), paid=Commitments(CommitmentBook(AT, (plan,))))
    assert analysis.now_hourly_usd == pytest.approx(2 * 0.192)
    assert analysis.whole.hourly_usd == pytest.approx(0)
    assert {node.request.cheapest.commitment.partition("/")[0] for node in analysis.whole.nodes} == {
        "savings-plan"
    }
    assert analysis.moves.hourly_usd < analysis.now_hourly_usd


def test_karpenters_nodes_are_compared_under_its_own_nodepools() -> None:
    analysis = found([*half_empty(**karpenter()), nodepool()])
    assert not analysis.are_assumed
    assert {each.claim.nodepool for each in analysis.whole.nodes} == {"default"}
    assert all(each.request.capacity_type == "on-demand" for each in analysis.whole.nodes)


def test_on_demand_becomes_spot_only_where_the_nodes_own_nodepool_allows_it() -> None:
    groups = found([*half_empty(), nodepool(sold=("on-demand", "spot"))])
    own = found([*half_empty(**karpenter()), nodepool(sold=("on-demand", "spot"))])
    assert {each.request.capacity_type for each in groups.whole.nodes} == {"on-demand"}
    assert {each.request.capacity_type for each in own.whole.nodes} == {"spot"}
    assert own.on_demand.hourly_usd > own.whole.hourly_usd
    assert groups.spot is not None
    assert groups.spot.hourly_usd < groups.whole.hourly_usd
    assert groups.spot.pods == 4


def test_pods_that_ask_for_on_demand_or_run_alone_are_no_option_for_spot() -> None:
    asking: dict[str, Any] = {"nodeSelector": {"karpenter.sh/capacity-type": "on-demand"}}
    labels = {"karpenter.sh/capacity-type": "on-demand"}
    manifests = [
        node("n", labels=labels),
        pod("single", "n", "single"),
        *(pod(f"asks-{n}", "n", "asks", "100m", **asking) for n in range(2)),
        *(pod(f"set-{n}", "n", "set", "100m", owner="StatefulSet") for n in range(2)),
        *(pod(f"kept-{n}", "n", "kept", "100m", annotations=KEEP) for n in range(2)),
    ]
    assert found(manifests).spot is None


def test_protected_pods_keep_their_nodes_in_what_moves_reach_but_not_in_what_is_repacked() -> None:
    manifests = half_empty()
    manifests += [pod("job", "n-0", "batch", "100m", annotations=KEEP), pod("db", "n-1", "db", "100m")]
    manifests += [budget("db", "db", allowed=0, expected=1, minAvailable=1)]

    analysis = found(manifests)

    held = {each.rule: each for each in analysis.held}
    assert held["DoNotDisrupt"].nodes == ("n-0",)
    assert held["DoNotDisrupt"].object == "pods of default/ReplicaSet/batch"
    assert held["PodDisruptionBudget"].nodes == ("n-1",)
    assert analysis.moves.hourly_usd >= 2 * 0.192 > analysis.whole.hourly_usd
    assert not {"n-0", "n-1"} & {name for move in analysis.moves.moves for name in move.sources}
    assert {h.rule: cost for h, cost in analysis.protections}["DoNotDisrupt"] > 0


def test_nodes_of_unknown_price_and_their_pods_are_on_neither_side() -> None:
    alone, beside = found(half_empty()), found([*half_empty(), node("huge", "x99.huge"), pod("x", "huge")])
    assert beside.now_hourly_usd == alone.now_hourly_usd
    assert beside.whole.hourly_usd == alone.whole.hourly_usd
    assert [each.name for each in beside.nodes if each.price is None] == ["huge"]
    assert "default/x" not in {key for each in beside.whole.nodes for key in each.claim.nominated}


def test_pods_that_no_nodepool_accepts_keep_their_nodes_at_their_price() -> None:
    manifests = [*half_empty(**karpenter()), nodepool()]
    manifests += [node("special", "m5.2xlarge", labels={"example.com/rack": "7"})]
    manifests += [pod("bound", "special", "bound", nodeSelector={"example.com/rack": "7"})]

    analysis = found(manifests)

    assert set(analysis.whole.kept) == {"special"}
    assert "pod default/bound" in analysis.whole.kept["special"]
    assert analysis.whole.hourly_usd >= 0.384


def test_percent_are_rounded_once() -> None:
    assert whole_percent({"hourly": 0.096}, {"hourly": 0.05132}) == "47", "46.54, of which 46.5 would give 46"
    assert whole_percent({"hourly": 0.0}, {"hourly": 0.0}) == "0"


def test_pods_without_a_node_are_counted_and_left_out() -> None:
    pending = pod("waits", "")
    del pending["spec"]["nodeName"]
    analysis = found([*half_empty(), pending])
    assert analysis.pending == 1
    assert analysis.whole.hourly_usd == found(half_empty()).whole.hourly_usd


def test_the_price_of_a_node_is_divided_without_a_rest() -> None:
    manifests = [node("n"), pod("p", "n"), pod("d", "n", "agent", "200m", "256Mi", owner="DaemonSet")]
    analysis = found(manifests)
    whole: Parts = analysis.parts["n"]
    assert whole.pods + whole.daemons + whole.free == pytest.approx(0.192)
    assert whole.pods > whole.daemons > 0
    assert [each.name for each in analysis.daemonsets] == ["default/DaemonSet/agent"]


def test_a_hard_zone_spread_costs_what_the_plan_without_it_saves() -> None:
    pods = [pod(f"p-{n}", f"n-{n}", "wide", "1600m", "3Gi", **zone_spread("wide")) for n in range(3)]
    nodes = [node(f"n-{n}", zone=f"us-east-1{'abc'[n]}") for n in range(3)]
    analysis = found([*nodes, *pods])
    (cost,) = analysis.constraints.costs
    assert cost.constraint.text == "zone spread on default/ReplicaSet/wide"
    assert cost.pods == 3
    assert cost.hourly_usd >= 0


def test_requests_beyond_use_are_priced_by_workload() -> None:
    usage = Usage({f"default/p-{n}": parse_resources({"cpu": "50m", "memory": "1Gi"}) for n in range(4)})
    (web,) = found(half_empty(), usage).oversized
    assert (web.name, web.pods) == ("default/ReplicaSet/web", 4)
    assert web.used is not None
    assert web.used.cpu_milli == 200
    assert 0 < web.unused_hourly_usd < web.hourly_usd


def test_a_replicasets_pods_belong_to_its_deployment() -> None:
    shape = builders.shape("1", "1Gi")
    assert workload_of(shape).startswith("default/")
    labels = {"pod-template-hash": "57a78a9d58"}
    owned = type(shape)("shop", labels, "ReplicaSet/web-57a78a9d58")
    assert workload_of(owned) == "shop/Deployment/web"


def test_families_are_compared_only_with_types_that_hold_as_much() -> None:
    analysis = found([node("n", "m5.xlarge"), pod("p", "n")])
    (family,) = families(analysis.nodes, catalog(), ["c6a.xlarge", "m5a.xlarge", "m6g.xlarge", "t3.xlarge"])
    assert (family.name, family.cheapest) == ("m5", "m5a.xlarge")
    assert families(analysis.nodes, catalog(), ["m6g.xlarge"]) == []


def test_budgets_limit_speed_unless_they_forbid_everything() -> None:
    slow = nodepool(disruption={"budgets": [{"nodes": "1"}]})
    never = nodepool(disruption={"budgets": [{"nodes": "0"}, {"nodes": "5"}]})
    at_night = nodepool(disruption={"budgets": [{"nodes": "0", "schedule": "@daily", "duration": "8h"}]})
    assert with_accumulated_budgets(slow)["spec"]["disruption"]["budgets"] == [{"nodes": "100%"}]
    assert with_accumulated_budgets(never)["spec"]["disruption"]["budgets"] == [{"nodes": "0"}]
    assert with_accumulated_budgets(at_night)["spec"]["disruption"]["budgets"] == [{"nodes": "100%"}]


def test_a_frozen_nodepool_keeps_its_nodes_out_of_reach() -> None:
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never"}
    analysis = found([*half_empty(**karpenter()), nodepool(disruption=disruption)])
    assert analysis.moves.hourly_usd == pytest.approx(analysis.now_hourly_usd)
    assert {each.rule for each in analysis.held} == {"ConsolidateAfter"}
    assert analysis.whole.hourly_usd < analysis.now_hourly_usd


def test_figures_are_ordered_from_the_bound_to_the_present_price() -> None:
    analysis = found(sparse(8))
    assert analysis.bound_hourly_usd <= analysis.best_hourly_usd <= analysis.now_hourly_usd
    assert OTHERS not in {each.claim.nodepool for each in analysis.whole.nodes}
    assert not analysis.whole.kept


def test_nodes_of_reservations_cost_nothing_and_stay() -> None:
    manifests = [*half_empty(), node("paid", labels={"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"})]
    analysis = found([*manifests, pod("p", "paid", "batch")])
    assert analysis.now_hourly_usd == pytest.approx(4 * 0.192)
    assert set(analysis.whole.kept) == {"paid"}


def test_malformed_objects_are_reported_and_the_rest_goes_on() -> None:
    bad_pool = {**nodepool("bad"), "spec": {"template": "none", "disruption": {"budgets": 7}}}
    bad_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "bad", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": [],
        "status": {"capacityReservations": "many"},
    }
    bad_pod = pod("bad", "n-0", cpu="much")
    analysis = found([*half_empty(**karpenter()), nodepool(), bad_pool, bad_class, bad_pod])
    assert analysis.whole.hourly_usd < analysis.now_hourly_usd
    said = " ".join(analysis.faults)
    assert "NodePool/bad" in said
    assert "EC2NodeClass/bad" in said
    assert "availableInstanceCount" not in said
    assert list(analysis.whole.kept) == ["n-0"]
    assert "'much' is not a quantity" in analysis.whole.kept["n-0"]
