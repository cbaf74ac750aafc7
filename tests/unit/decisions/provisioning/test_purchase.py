"""Which nodes are bought: the cheapest that serve the pods, from the heaviest NodePool, within its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, PlannedNode, decide
from nodesmith.decisions.provisioning.planner import Planner
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import Image
from tests.builders import (
    EXPRESS,
    NOW,
    ZONES,
    anti_affinity,
    catalog,
    claim,
    daemon,
    expression,
    inputs,
    ledger,
    node,
    node_affinity,
    nodeclass_manifest,
    nodeclass_status,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)

CPU, FAMILY = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-family"
CATEGORY, TYPE = "karpenter.k8s.aws/instance-category", "node.kubernetes.io/instance-type"
CAPACITY, ZONE, ARCH = "karpenter.sh/capacity-type", "topology.kubernetes.io/zone", "kubernetes.io/arch"
EITHER = expression(CAPACITY, "In", "spot", "on-demand")


def plan(some: Sequence[Any], *pools: dict[str, Any], **fields: Any) -> Plan:
    known = {"ledger": fields.pop("ledger", ledger())}
    return decide(
        inputs(snapshot=snapshot(pods=some, nodepools=pools or (nodepool_manifest(),), **fields), **known)
    )


def kind(name: str) -> InstanceType:
    return next(t for t in instance_types(catalog(), NodeConfiguration()) if t.name == name)


def bought(decided: Plan) -> list[tuple[str, str]]:
    """NodePool and cheapest instance type of every node."""
    return [(n.claim.nodepool, n.request.overrides[0].instance_type) for n in decided.nodes]


def types_of(planned: PlannedNode) -> set[str]:
    return {o.instance_type for o in planned.request.overrides}


def unplaced(decided: Plan) -> list[str]:
    return sorted(key for group in decided.unplaced for key in group.pods)


class TestTheExpressExample:
    """20 pods of 1 cpu, to be spread over zones if possible, spot or on-demand of categories c, m and r."""

    def decided(self) -> Plan:
        return plan(pods(shape(topologySpreadConstraints=spread(hard=False)), 20))

    def test_three_spot_nodes_of_eight_vcpus_are_bought_in_three_zones(self) -> None:
        nodes = self.decided().nodes

        assert sorted(len(n.claim.nominated) for n in nodes) == [6, 7, 7]
        assert [{o.zone for o in n.request.overrides} for n in nodes] == [{z} for z in ZONES]
        assert {n.request.capacity_type for n in nodes} == {"spot"}
        assert {kind(o.instance_type).labels[CPU] for n in nodes for o in n.request.overrides[:1]} == {"8"}

    def test_each_is_the_cheapest_type_that_holds_its_pods(self) -> None:
        for planned in self.decided().nodes:
            need = shape().requests.times(len(planned.claim.nominated))
            zone = planned.request.overrides[0].zone
            prices = [
                o.price_hourly_usd
                for t in instance_types(catalog(), NodeConfiguration())
                if t.labels[ARCH] == "amd64" and t.labels.get(CATEGORY) in {"c", "m", "r"}
                for o in t.offerings
                if o.zone == zone and need.fits_in(t.allocatable)
            ]
            assert planned.price_hourly_usd == min(prices)

    def test_the_price_is_the_sum_and_not_far_above_the_bound(self) -> None:
        decided = self.decided()

        assert decided.price_hourly_usd == pytest.approx(sum(n.price_hourly_usd for n in decided.nodes))
        assert decided.price_hourly_usd == pytest.approx(0.3213)
        assert 0.26 < decided.bound_hourly_usd <= decided.price_hourly_usd

    def test_free_capacity_too_small_for_any_pod_does_not_lower_the_bound(self) -> None:
        small = [node(f"node-{n:03d}", cpu="1") for n in range(200)]

        decided = plan(pods(shape("1500m"), 100), nodes=small)

        assert not decided.placed
        assert 0.9 * decided.price_hourly_usd < decided.bound_hourly_usd <= decided.price_hourly_usd

    def test_every_node_may_become_one_of_many_types(self) -> None:
        for planned in self.decided().nodes:
            assert len(types_of(planned)) >= 15
            assert len(planned.request.overrides) <= 60


class TestWeights:
    DEAR = (expression(TYPE, "In", "m5.2xlarge"), expression(CAPACITY, "In", "on-demand"))

    def test_the_heavier_pool_comes_first_although_it_costs_more(self) -> None:
        decided = plan(
            pods(shape()),
            nodepool_manifest("cheap"),
            nodepool_manifest("dear", weight=10, requirements=self.DEAR),
        )

        assert bought(decided) == [("dear", "m5.2xlarge")]
        assert decided.price_hourly_usd == pytest.approx(decided.bound_hourly_usd)
        assert decided.weights == "kept"

    def test_of_pools_with_equal_weight_the_cheaper_is_used(self) -> None:
        decided = plan(
            pods(shape()),
            nodepool_manifest("a-dear", weight=10, requirements=self.DEAR),
            nodepool_manifest("cheap", weight=10),
        )

        assert [pool for pool, _ in bought(decided)] == ["cheap"]
        assert decided.weights == ""

    def test_what_the_heavier_pools_limits_leave_goes_to_the_next(self) -> None:
        decided = plan(
            pods(shape("7"), 3),
            nodepool_manifest("heavy", weight=10, requirements=self.DEAR, limits={"cpu": "16"}),
            nodepool_manifest("light"),
        )

        assert Counter(pool for pool, _ in bought(decided)) == {"heavy": 2, "light": 1}
        assert decided.price_hourly_usd > decided.bound_hourly_usd
        assert decided.weights == "disregarded"
        assert not decided.unplaced

    @pytest.mark.parametrize(
        ("limits", "said"),
        [
            ({"nodes": "3"}, "disregarded"),
            ({"nodes": "9"}, "disregarded"),
            ({"nodes": "100"}, ""),
            ({"cpu": "1000"}, ""),
            ({}, ""),
        ],
    )
    def test_a_plan_says_if_its_bound_disregards_limits_of_which_little_is_left(
        self, limits: dict[str, str], said: str
    ) -> None:
        decided = plan(pods(shape("7"), 3), nodepool_manifest(requirements=self.DEAR, limits=limits))

        assert len(decided.nodes) == 3
        assert decided.limits == said

    def test_pods_that_a_limit_leaves_without_a_node_are_decided_about_once(self) -> None:
        planners: list[Planner] = []

        class Counted(Planner):
            def __init__(self, *about: Any, **fields: Any) -> None:
                super().__init__(*about, **fields)
                planners.append(self)

        pool = nodepool_manifest(limits={"cpu": "16"})
        decided = decide(inputs(snapshot=snapshot(pods=pods(shape("7"), 3), nodepools=(pool,))), by=Counted)

        assert decided.unplaced
        assert len(planners) == 1

    @pytest.mark.parametrize(
        "spec",
        [{"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}, {"labels": {"team": "b"}}],
        ids=["taint", "label"],
    )
    def test_what_the_heavier_pool_may_not_hold_goes_to_the_next(self, spec: dict[str, Any]) -> None:
        picky = shape(nodeSelector={"team": "a"})

        decided = plan(
            pods(picky),
            nodepool_manifest("heavy", weight=10, **spec),
            nodepool_manifest("light", labels={"team": "a"}),
        )

        assert [pool for pool, _ in bought(decided)] == ["light"]

    def test_a_pool_without_weight_comes_last(self) -> None:
        decided = plan(pods(shape()), nodepool_manifest("a"), nodepool_manifest("b", weight=1))

        assert [pool for pool, _ in bought(decided)] == ["b"]


class TestLimits:
    EIGHT = (expression(TYPE, "In", "m5.2xlarge"), EITHER)

    @pytest.mark.parametrize(
        ("limits", "nodes"),
        [({"cpu": "24"}, 3), ({"cpu": "23"}, 2), ({"nodes": "1"}, 1), ({"nodes": "0"}, 0), ({"memory": "64Gi"}, 2),
         ({"cpu": "100", "nodes": "2"}, 2), ({"nvidia.com/gpu": "0"}, 5)],
    )  # fmt: skip
    def test_one_decision_buys_no_more_than_the_limits_allow(
        self, limits: dict[str, str], nodes: int
    ) -> None:
        pool = nodepool_manifest(requirements=self.EIGHT, limits=limits)

        decided = plan(pods(shape("5"), 5), pool)

        assert len(decided.nodes) == nodes
        assert len(unplaced(decided)) == 5 - nodes

    def test_existing_nodes_and_claims_count_towards_the_limits(self) -> None:
        pool = nodepool_manifest(requirements=self.EIGHT, limits={"cpu": "24"})
        running = node(cpu="8", labels={"karpenter.sh/nodepool": "default"})
        coming = claim(capacity=Resources({"cpu": 8000}), allocatable=Resources({}))

        decided = plan(pods(shape("7500m"), 5), pool, nodes=[running], ledger=ledger(claims=(coming,)))

        assert len(decided.nodes) == 1

    def test_a_node_without_a_provider_id_hides_no_claim_from_the_limits(self) -> None:
        pool = nodepool_manifest(requirements=self.EIGHT, limits={"nodes": "2"})
        starting = node(cpu="1", provider_id="", labels={"karpenter.sh/nodepool": "default"})

        decided = plan(
            pods(shape("5")), pool, nodes=[starting],
            ledger=ledger(claims=(claim(phase=Phase.PENDING, allocatable=Resources({})),)),
        )  # fmt: skip

        assert not decided.nodes

    def test_a_node_and_its_claim_are_counted_once(self) -> None:
        pool = nodepool_manifest(requirements=self.EIGHT, limits={"nodes": "2"})
        joined = node(cpu="1", provider_id=claim().provider_id, labels={"karpenter.sh/nodepool": "default"})

        decided = plan(
            pods(shape("5")), pool, nodes=[joined], ledger=ledger(claims=(claim(allocatable=Resources({})),))
        )

        assert len(decided.nodes) == 1

    def test_no_type_that_the_node_may_become_breaks_the_limit(self) -> None:
        pool = nodepool_manifest(limits={"cpu": "8", "memory": "20Gi"})

        for planned in plan(pods(shape(), 7), pool).nodes:
            for name in types_of(planned):
                assert kind(name).capacity.cpu_milli <= 8000
                assert kind(name).capacity.memory_bytes <= 20 * 2**30

    def test_a_preferred_zone_gives_way_to_a_limit(self) -> None:
        here = nodepool_manifest(
            "here", requirements=(*self.EIGHT, expression(ZONE, "In", ZONES[0])), limits={"nodes": "1"}
        )
        there = nodepool_manifest("there", requirements=(*self.EIGHT, expression(ZONE, "In", ZONES[1])))
        web = shape("7", topologySpreadConstraints=spread(hard=False))

        decided = plan(pods(web, 4), here, there)

        assert not decided.unplaced
        assert Counter(pool for pool, _ in bought(decided)) == {"here": 1, "there": 3}

    def test_a_hard_spread_does_not_give_way(self) -> None:
        here = nodepool_manifest(
            "here", requirements=(*self.EIGHT, expression(ZONE, "In", ZONES[0])), limits={"nodes": "1"}
        )
        there = nodepool_manifest("there", requirements=(*self.EIGHT, expression(ZONE, "In", ZONES[1])))
        web = shape("7", topologySpreadConstraints=spread(hard=True))

        assert len(unplaced(plan(pods(web, 4), here, there))) == 1


class TestMinValues:
    def pool(self, name: str = "default", *, of: str, least: int, **fields: Any) -> dict[str, Any]:
        flexible = expression(of, "Exists", minValues=least)
        return nodepool_manifest(name, requirements=(*EXPRESS, flexible), **fields)

    @pytest.mark.parametrize(("of", "least"), [(TYPE, 40), (FAMILY, 20), (ZONE, 3), (CPU, 3)])
    def test_at_least_min_values_different_values_stay_possible(self, of: str, least: int) -> None:
        (planned,) = plan(pods(shape()), self.pool(of=of, least=least)).nodes

        values = {
            o.zone if of == ZONE else {**kind(o.instance_type).labels, TYPE: o.instance_type}[of]
            for o in planned.request.overrides
        }
        assert len(values) >= least
        assert len(planned.request.overrides) <= 60

    def test_the_reason_gives_the_number_of_values_available(self) -> None:
        few = (
            expression(TYPE, "In", "m5.large", "m5.xlarge", "m5.2xlarge"),
            expression(TYPE, "Exists", minValues=3),
            EITHER,
        )

        decided = plan(pods(shape("3500m")), nodepool_manifest(requirements=few))

        assert unplaced(decided) == ["default/web-0000"]
        assert f"minValues requirement is not met for label(s) {TYPE} 2 of 3" in decided.unplaced[0].reason

    def test_bare_metal_is_requested_where_min_values_are_not_reached_without_it(self) -> None:
        listed = (expression(TYPE, "In", "m5.large", "m5.metal", "c5.metal", minValues=2), EITHER)

        (planned,) = plan(pods(shape()), nodepool_manifest(requirements=listed)).nodes

        assert "m5.large" in types_of(planned)
        assert len(types_of(planned)) == 2
        assert planned.request.overrides[0].instance_type == "m5.large"

    def test_bare_metal_is_not_requested_where_min_values_are_reached_without_it(self) -> None:
        listed = (expression(TYPE, "In", "m5.large", "r5.large", "m5.metal", minValues=2), EITHER)

        (planned,) = plan(pods(shape()), nodepool_manifest(requirements=listed)).nodes

        assert types_of(planned) == {"m5.large", "r5.large"}

    def test_smaller_nodes_are_bought_where_larger_ones_leave_too_little_choice(self) -> None:
        sizes = [f"m5.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge")]
        flexible = (expression(TYPE, "In", *sizes, minValues=3), EITHER)

        decided = plan(pods(shape("900m"), 30), nodepool_manifest(requirements=flexible))

        assert not decided.unplaced
        assert all(len(types_of(n)) >= 3 for n in decided.nodes)

    @pytest.mark.parametrize(("memory", "nodes"), [("30Gi", 2), ("29Gi", 0)])
    def test_types_that_take_more_of_a_limit_count_if_the_limit_allows_all_of_them(
        self, memory: str, nodes: int
    ) -> None:
        flexible = (expression(TYPE, "In", "m5.large", "r5.large", minValues=2), EITHER)
        limited = nodepool_manifest(requirements=flexible, limits={"memory": memory})

        decided = plan(pods(shape("1500m"), 2), limited)

        assert [set(types_of(n)) for n in decided.nodes] == [{"m5.large", "r5.large"}] * nodes

    def test_a_pool_of_equal_weight_serves_what_another_cannot(self) -> None:
        narrow = (expression(TYPE, "In", "c5a.large"), expression(FAMILY, "Exists", minValues=2), EITHER)
        dear = (expression(TYPE, "In", "m5.8xlarge"), expression(CAPACITY, "In", "on-demand"))

        decided = plan(
            pods(shape()),
            nodepool_manifest("narrow", requirements=narrow),
            nodepool_manifest("dear", requirements=dear),
        )

        assert bought(decided) == [("dear", "m5.8xlarge")]

    def test_a_pool_of_equal_weight_serves_all_pods_that_another_refuses_each(self) -> None:
        choosy = (EITHER, expression(FAMILY, "Exists", minValues=2))
        of_types = [shape(nodeSelector={TYPE: name}) for name in ("m5.large", "c5a.large", "r5.large")]

        decided = plan(
            [pod for n, each in enumerate(of_types) for pod in pods(each, prefix=f"web-{n}")],
            nodepool_manifest("choosy", requirements=choosy),
            nodepool_manifest("plain", requirements=(EITHER,)),
        )

        expected = [("plain", name) for name in ("c5a.large", "m5.large", "r5.large")]
        assert sorted(bought(decided)) == expected

    def test_capacity_types_count_as_far_as_types_have_such_offerings(self) -> None:
        pool = nodepool_manifest(requirements=(expression(CAPACITY, "In", "spot", "on-demand", minValues=2),))

        assert len(plan(pods(shape()), pool).nodes) == 1


class TestCapacityTypes:
    def test_spot_is_taken_while_it_is_cheaper(self) -> None:
        assert plan(pods(shape())).nodes[0].request.capacity_type == "spot"

    @pytest.mark.parametrize("only", ["spot", "on-demand"])
    def test_a_pool_or_a_pod_that_names_one_gets_it(self, only: str) -> None:
        pool = nodepool_manifest(requirements=(expression(CAPACITY, "In", only),))
        pod = shape(nodeSelector={CAPACITY: only})

        assert plan(pods(shape()), pool).nodes[0].request.capacity_type == only
        assert plan(pods(pod)).nodes[0].request.capacity_type == only

    def closed(self, *keys: OfferingKey, until: timedelta = timedelta(minutes=3)) -> Any:
        return ledger(unavailable={k: Backoff(NOW + until, 1, "InsufficientInstanceCapacity") for k in keys})

    def everything(self, capacity_type: str) -> list[OfferingKey]:
        return [
            OfferingKey(capacity_type, t.name, zone)
            for t in instance_types(catalog(), NodeConfiguration())
            for zone in ZONES
        ]

    def test_without_any_spot_left_on_demand_is_bought(self) -> None:
        decided = plan(pods(shape()), ledger=self.closed(*self.everything("spot")))

        assert decided.nodes[0].request.capacity_type == "on-demand"

    def test_an_offering_without_capacity_is_left_out_until_its_back_off_ends(self) -> None:
        first = plan(pods(shape())).nodes[0].request.offerings()

        meanwhile = plan(pods(shape()), ledger=self.closed(*first[:3])).nodes[0].request.offerings()
        later = (
            plan(pods(shape()), ledger=self.closed(*first[:3], until=timedelta(0)))
            .nodes[0]
            .request.offerings()
        )

        assert not set(first[:3]) & set(meanwhile)
        assert later == first

    def test_with_nothing_left_the_pool_says_so(self) -> None:
        pool = nodepool_manifest(requirements=(expression(CAPACITY, "In", "spot"),))

        decided = plan(pods(shape()), pool, ledger=self.closed(*self.everything("spot")))

        assert "EC2 lately refused all 3,732 that it may buy" in decided.unplaced[0].reason

    def test_all_overrides_of_a_request_share_its_capacity_type_and_spot_stays_below_on_demand(self) -> None:
        (planned,) = plan(pods(shape("7"))).nodes
        (on_demand,) = plan(pods(shape("7", nodeSelector={CAPACITY: "on-demand"}))).nodes

        assert planned.claim.capacity_type == planned.request.capacity_type == "spot"
        assert planned.request.overrides[-1].price_hourly_usd <= on_demand.price_hourly_usd


class TestKinds:
    ANY = (EITHER,)

    def test_metal_and_accelerators_are_not_bought_for_what_fits_elsewhere(self) -> None:
        decided = plan(pods(shape("20", "30Gi"), 40), nodepool_manifest(requirements=self.ANY))

        for planned in decided.nodes:
            for name in types_of(planned):
                assert "metal" not in name
                assert not kind(name).capacity.of("nvidia.com/gpu")

    def test_metal_is_bought_where_it_is_asked_for(self) -> None:
        metal = shape(nodeSelector={TYPE: "c5.metal"})

        assert bought(plan(pods(metal), nodepool_manifest(requirements=self.ANY))) == [
            ("default", "c5.metal")
        ]

    def test_pods_that_ask_for_gpus_get_them(self) -> None:
        gpu = shape("1", requests={"nvidia.com/gpu": "4"})
        status = ledger().nodeclasses["default"]
        plain = Image("ami-gpu")
        known = {"default": replace(status, images=(plain,))}

        decided = plan(
            pods(gpu) + pods(shape(app="plain")),
            nodepool_manifest(requirements=self.ANY),
            ledger=ledger(nodeclasses=known),
        )

        with_gpus = [n for n in decided.nodes if "default/web-0000" in n.claim.nominated]
        assert all(kind(t).capacity.of("nvidia.com/gpu") >= 4 for n in with_gpus for t in types_of(n))
        assert not decided.unplaced

    @pytest.mark.parametrize("arch", ["arm64", "amd64"])
    def test_a_pod_gets_the_architecture_it_selects(self, arch: str) -> None:
        (planned,) = plan(
            pods(shape(nodeSelector={ARCH: arch})), nodepool_manifest(requirements=self.ANY)
        ).nodes

        assert {kind(name).labels[ARCH] for name in types_of(planned)} == {arch}

    def test_pods_of_both_architectures_do_not_share(self) -> None:
        arm, amd = (shape(app=a, nodeSelector={ARCH: a}) for a in ("arm64", "amd64"))

        decided = plan(pods(arm, 2) + pods(amd, 2), nodepool_manifest(requirements=self.ANY))

        assert not decided.unplaced
        for planned in decided.nodes:
            (app,) = {key.split("/")[1][:5] for key in planned.claim.nominated}
            assert {kind(name).labels[ARCH] for name in types_of(planned)} == {app}

    def test_without_an_image_for_it_an_architecture_is_not_bought(self) -> None:
        status = ledger().nodeclasses["default"]
        amd = tuple(i for i in status.images if i.id == "ami-amd64")
        known = {"default": replace(status, images=amd)}

        decided = plan(
            pods(shape(nodeSelector={ARCH: "arm64"})),
            nodepool_manifest(requirements=self.ANY),
            ledger=ledger(nodeclasses=known),
        )

        assert unplaced(decided) == ["default/web-0000"]


class TestDaemonSets:
    def test_a_node_is_large_enough_for_its_daemonsets_too(self) -> None:
        pool = nodepool_manifest(requirements=(expression(TYPE, "In", "m5.large", "m5.xlarge"), EITHER))

        assert bought(plan(pods(shape("1500m")), pool)) == [("default", "m5.large")]
        assert bought(plan(pods(shape("1500m")), pool, daemonsets=[daemon(cpu="500m")])) == [
            ("default", "m5.xlarge")
        ]

    def test_a_type_that_cannot_even_run_the_daemonsets_is_not_bought_for_pods_that_ask_for_nothing(
        self,
    ) -> None:
        idle = shape("0", "0")
        pool = nodepool_manifest(requirements=(expression(TYPE, "In", "t3.nano", "m5.large"), EITHER))

        assert bought(plan(pods(idle), pool)) == [("default", "t3.nano")]
        assert bought(plan(pods(idle), pool, daemonsets=[daemon(memory="2Gi")])) == [("default", "m5.large")]

    def test_a_pool_whose_daemonsets_fit_nowhere_says_so(self) -> None:
        decided = plan(pods(shape("0", "0")), daemonsets=[daemon(cpu="2k")])

        assert (decided.obstacles or {})["default"].startswith("its DaemonSets ask for more than any")

    def test_daemonsets_of_one_architecture_take_capacity_on_that_one_only(self) -> None:
        greedy = daemon(cpu="3500m", nodeSelector={ARCH: "amd64"})
        pool = nodepool_manifest(requirements=(expression(TYPE, "In", "m5.xlarge", "m6g.xlarge"), EITHER))

        (planned,) = plan(pods(shape("1500m")), pool, daemonsets=[greedy]).nodes

        assert types_of(planned) == {"m6g.xlarge"}

    def test_daemonsets_that_do_not_tolerate_the_pool_cost_nothing(self) -> None:
        pool = nodepool_manifest(
            requirements=(expression(TYPE, "In", "m5.large"), EITHER),
            taints=[{"key": "x", "effect": "NoSchedule"}],
        )
        guest = shape("1500m", tolerations=[{"operator": "Exists"}])

        assert len(plan(pods(guest), pool, daemonsets=[daemon(cpu="1")]).nodes) == 1

    def test_no_node_is_bought_for_a_host_port_that_a_daemonset_takes(self) -> None:
        def port(of: int) -> dict[str, Any]:
            return {"containers": [{"name": "m", "ports": [{"hostPort": of}]}]}

        exporter = daemon("exporter", **port(9100))

        decided = plan(
            pods(shape(**port(9100))) + pods(shape(app="free", **port(9200))), daemonsets=[exporter]
        )

        assert unplaced(decided) == ["default/web-0000"]
        assert "DaemonSet/exporter" in decided.unplaced[0].reason
        assert [n.claim.nominated for n in decided.nodes] == [("default/free-0000",)]


class TestCompanies:
    """Shapes that may not share a new node."""

    def test_labels_that_the_pool_leaves_open_are_set_as_the_pods_ask(self) -> None:
        pool = nodepool_manifest(requirements=(*EXPRESS, expression("example.com/team", "Exists")))
        a, b = (shape(app=team, nodeSelector={"example.com/team": team}) for team in ("a", "b"))

        decided = plan(pods(a, 2) + pods(b, 2) + pods(shape(), 2), pool)

        labels = {key: n.claim.labels["example.com/team"] for n in decided.nodes for key in n.claim.nominated}
        assert [labels[f"default/{team}-000{n}"] for team in ("a", "b") for n in (0, 1)] == [
            "a",
            "a",
            "b",
            "b",
        ]
        assert len(labels) == 6

    def test_pods_without_a_selector_share_a_node_with_those_that_select_a_label(self) -> None:
        pool = nodepool_manifest(requirements=(*EXPRESS, expression("example.com/team", "Exists")))
        some = shape("100m", app="a", nodeSelector={"example.com/team": "a"})

        assert len(plan(pods(some) + pods(shape("100m")), pool).nodes) == 1

    def test_a_value_is_chosen_from_those_that_the_pool_lists(self) -> None:
        pool = nodepool_manifest(requirements=(*EXPRESS, expression("example.com/team", "In", "a", "b")))
        some = shape(nodeSelector={"example.com/team": "b"})

        assert plan(pods(some), pool).nodes[0].claim.labels["example.com/team"] == "b"
        assert unplaced(plan(pods(shape(nodeSelector={"example.com/team": "c"})), pool)) == [
            "default/web-0000"
        ]

    def test_alternatives_that_ask_for_different_labels_are_not_mixed_on_one_node(self) -> None:
        team = "example.com/team"
        pool = nodepool_manifest(requirements=(EITHER, expression(team, "In", "a", "b")))
        choosy = shape(
            affinity=node_affinity(
                [expression(team, "In", "a"), expression(ARCH, "In", "arm64")],
                [expression(team, "In", "b"), expression(ARCH, "In", "amd64")],
            )
        )
        decided = plan(pods(choosy, 3), pool)

        assert decided.nodes
        for planned in decided.nodes:
            archs = {kind(name).labels[ARCH] for name in types_of(planned)}
            assert archs == {{"a": "arm64", "b": "amd64"}[planned.claim.labels[team]]}

    @pytest.mark.parametrize(
        "apart",
        [
            lambda app: shape(app=app, affinity=anti_affinity("a")),
            lambda app: shape(app=app, containers=[{"name": "m", "ports": [{"hostPort": 80}]}]),
        ],
        ids=["anti-affinity", "host port"],
    )
    def test_shapes_that_limit_each_other_get_nodes_of_their_own(self, apart: Any) -> None:
        first, second = apart("a"), apart("b")

        decided = plan(pods(first) + pods(second) + pods(shape(), 2))

        assert not decided.unplaced
        for planned in decided.nodes:
            assert not {"default/a-0000", "default/b-0000"} <= set(planned.claim.nominated)

    @pytest.mark.parametrize(("skew", "together"), [(1, 1), (2, 2)])
    def test_a_spread_over_nodes_that_selects_others_limits_those_beside_it(
        self, skew: int, together: int
    ) -> None:
        over_a = spread("kubernetes.io/hostname", hard=True, app="a", max_skew=skew)
        some, other = shape(app="a"), shape(app="b", topologySpreadConstraints=over_a)

        decided = plan(pods(some, 5) + pods(other, 1))

        (beside,) = [n.claim.nominated for n in decided.nodes if "default/b-0000" in n.claim.nominated]
        assert len(beside) <= 1 + together
        assert not decided.unplaced

    def test_pods_that_repel_each_other_get_a_node_each(self) -> None:
        hermit: Shape = shape("100m", affinity=anti_affinity())

        assert [len(n.claim.nominated) for n in plan(pods(hermit, 4)).nodes] == [1, 1, 1, 1]

    def test_a_spread_over_nodes_allows_as_many_as_its_skew(self) -> None:
        some = shape(
            "100m", topologySpreadConstraints=spread("kubernetes.io/hostname", hard=True, max_skew=2)
        )

        assert sorted(len(n.claim.nominated) for n in plan(pods(some, 5)).nodes) == [1, 2, 2]


def test_two_nodeclasses_are_two_kinds_of_nodes() -> None:
    other = nodeclass_manifest("other", kubelet={"maxPods": 8})
    known = {**ledger().nodeclasses}
    status = known["default"]
    known["other"] = replace(status, name="other")

    decided = plan(
        pods(shape("10m", "10Mi"), 16),
        nodepool_manifest(nodeclass="other"),
        nodeclasses=[nodeclass_manifest(), other],
        ledger=ledger(nodeclasses=known),
    )

    assert sorted(len(n.claim.nominated) for n in decided.nodes) == [8, 8]


class TestPreemption:
    """kube-scheduler makes room for a pod on a node that is there: nothing is bought, the room is not given away."""

    def test_a_preempting_pod_gets_no_second_node(self) -> None:
        vip = replace(pods(shape("3", app="vip"))[0], nominated_node="node-1")

        decided = plan([vip], nodes=[node()])

        assert decided.is_idle
        assert decided.ignored[0].pods == ("default/vip-0000",)

    def test_its_capacity_is_not_given_to_another_pod(self) -> None:
        vip = replace(pods(shape("3", app="vip"))[0], nominated_node="node-1")

        decided = plan([vip, *pods(shape("2"))], nodes=[node()])

        assert not decided.placed
        assert [n.claim.nominated for n in decided.nodes] == [("default/web-0000",)]

    def test_a_pod_that_it_has_preempted_gets_a_node_once_it_is_pending_again(self) -> None:
        vip = replace(pods(shape("3", app="vip"))[0], nominated_node="node-1")
        going = replace(pods(shape("4", app="low"), node="node-1")[0], deleting=True)
        again = pods(shape("4", app="low"), prefix="again")

        decided = plan([vip, going, *again], nodes=[node()])

        assert [n.claim.nominated for n in decided.nodes] == [("default/again-0000",)]

    def test_one_whose_nomination_is_withdrawn_is_served(self) -> None:
        assert len(plan(pods(shape("3", app="vip")), nodes=[node(cpu="2")]).nodes) == 1


@pytest.mark.parametrize(("word", "sold"), [("SPOT", "spot"), ("ON_DEMAND", "on-demand")])
def test_pods_may_select_the_capacity_type_by_the_label_of_managed_node_groups(word: str, sold: str) -> None:
    asking = shape(nodeSelector={"eks.amazonaws.com/capacityType": word})
    decided = plan(pods(asking, 3), nodepool_manifest(requirements=[EITHER]))
    assert {node.claim.capacity_type for node in decided.nodes} == {sold}
    assert decided.unplaced == ()


@pytest.mark.parametrize("exotic", ["g5.xlarge", "p5.48xlarge", "m5.metal"])
def test_a_pod_that_only_bare_metal_or_accelerated_nodes_hold_is_served_beside_others(exotic: str) -> None:
    """Such nodes are left out if no pod needs them. Which pod does is a question of that pod, not of the first one."""
    types = {"red": "m5.xlarge", "blue": "c6a.xlarge", "special": exotic}
    image = Image("ami-1")
    pools = [
        nodepool_manifest(team, labels={"team": team}, requirements=[expression(TYPE, "In", name), EITHER])
        for team, name in types.items()
    ]
    some = [pod for team in types for pod in pods(shape(app=team, nodeSelector={"team": team}))]
    decided = plan(some, *pools, ledger=ledger(nodeclasses={"default": nodeclass_status(images=(image,))}))
    assert unplaced(decided) == []
    assert sorted(bought(decided)) == sorted(types.items())
