"""Preferences of pods: rules for as long as they can be satisfied, or nothing that may raise the price."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.decisions.scheduling.offerings.launchable import TemplateLaunching
from nodesmith.decisions.scheduling.preferences import variants
from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.policies import NodeSettings, PreferencePolicy
from tests.builders import (
    ZONES,
    bind,
    expression,
    inputs,
    node,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)

ZONE, HOSTNAME, CAPACITY = (
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "karpenter.sh/capacity-type",
)
FAMILY = "karpenter.k8s.aws/instance-family"
A, B, C = ZONES
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def wish_for(key: str, *values: str, weight: int = 1) -> dict[str, Any]:
    return {"weight": weight, "preference": {"matchExpressions": [expression(key, "In", *values)]}}


def wish_about(app: str, key: str, weight: int = 1) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}}


def relaxation(
    *nodes: dict[str, Any],
    near: tuple[dict[str, Any], ...] = (),
    apart: tuple[dict[str, Any], ...] = (),
    **spec: Any,
) -> Shape:
    affinity = {
        "nodeAffinity": {PREFERRED: list(nodes)},
        "podAffinity": {PREFERRED: list(near)},
        "podAntiAffinity": {PREFERRED: list(apart)},
    }
    return shape(affinity=affinity, **spec)


def plan(of: Shape, count: int, policy: PreferencePolicy = PreferencePolicy.RESPECT, **fields: Any) -> Plan:
    seen = snapshot(pods=pods(of, count), nodepools=fields.pop("pools", [nodepool_manifest()]), **fields)
    return decide(inputs(snapshot=seen, settings=NodeSettings(preference_policy=policy)))


def zones(decided: Plan) -> list[set[str]]:
    return [{o.zone for o in n.request.overrides} for n in decided.nodes]


class TestRespect:
    def test_preferred_node_affinity_is_satisfied(self) -> None:
        assert {zone for each in zones(plan(relaxation(wish_for(ZONE, B)), 2)) for zone in each} == {B}

    def test_the_heaviest_term_counts_and_gives_way_to_the_next_if_unsatisfiable(self) -> None:
        decided = plan(
            relaxation(wish_for(ZONE, "nowhere", weight=9), wish_for(ZONE, C, weight=5), wish_for(ZONE, A)), 1
        )

        assert zones(decided) == [{C}]

    def test_a_preference_that_nothing_meets_is_dropped(self) -> None:
        assert len(plan(relaxation(wish_for("example.com/rack", "1")), 1).nodes) == 1

    def test_preferred_anti_affinity_over_hostnames_costs_nodes(self) -> None:
        decided = plan(relaxation(apart=(wish_about("web", HOSTNAME),)), 3)

        assert [len(n.claim.nominated) for n in decided.nodes] == [1, 1, 1]

    def test_preferred_anti_affinity_over_zones_holds_for_one_pod_a_zone(self) -> None:
        decided = plan(relaxation(apart=(wish_about("web", ZONE),), requests={"cpu": "3"}), 5)

        assert not decided.unplaced
        assert {z for each in zones(decided) for z in each} >= {A, B, C}

    def test_preferred_affinity_holds_where_a_matching_pod_runs_and_is_dropped_otherwise(self) -> None:
        alone = plan(relaxation(near=(wish_about("db", ZONE),)), 2)
        together = plan(relaxation(near=(wish_about("web", ZONE),), requests={"cpu": "3"}), 9)

        assert not alone.unplaced
        assert len({frozenset(z) for z in zones(together)}) == 1
        assert all(len(z) == 1 for z in zones(together))

    def test_the_heaviest_preference_is_dropped_first(self) -> None:
        both = (wish_about("web", ZONE, weight=10), wish_about("web", HOSTNAME))

        decided = plan(relaxation(wish_for(ZONE, A), apart=both), 4)

        assert zones(decided) == [{A}] * 4
        assert [len(n.claim.nominated) for n in decided.nodes] == [1] * 4

    @pytest.mark.parametrize(
        ("preferences", "goes_to_a"),
        [
            ({"near": (wish_about("web", ZONE),), "apart": (wish_about("web", ZONE, weight=100),)}, False),
            ({"apart": (wish_about("web", ZONE),), "nodes": [wish_for(ZONE, A, weight=100)]}, True),
            ({"nodes": [wish_for(ZONE, A)], "topologySpreadConstraints": spread(hard=False)}, False),
        ],
        ids=[
            "affinity before anti-affinity",
            "anti-affinity before node affinity",
            "node affinity before spread",
        ],
    )
    def test_preferences_that_contradict_each_other_are_dropped_by_kind_whatever_their_weight(
        self, preferences: dict[str, Any], goes_to_a: bool
    ) -> None:
        """Two pods of `web` fill a node in zone A. Pods that follow them go there; pods that avoid them do not."""
        of = relaxation(*preferences.pop("nodes", ()), app="new", **preferences)
        there = bind(shape("2"), "n-a", 2)

        decided = decide(inputs(snapshot=snapshot(pods=[*pods(of), *there], nodes=[node("n-a", zone=A)])))

        (found,) = zones(decided)
        assert (found == {A}) is goes_to_a

    def test_a_preference_is_dropped_when_a_limit_forbids_it(self) -> None:
        only_a = nodepool_manifest("a", requirements=[expression(ZONE, "In", A)], limits={"cpu": "0"})
        elsewhere = nodepool_manifest("b", requirements=[expression(ZONE, "In", B)])

        decided = plan(relaxation(wish_for(ZONE, A)), 1, pools=[only_a, elsewhere])

        assert zones(decided) == [{B}]

    @pytest.mark.parametrize("kind", ["anti-affinity", "spread"])
    def test_a_preference_is_dropped_when_min_values_forbid_it_in_every_domain(self, kind: str) -> None:
        """Each family is a domain in which no node of four families can be bought, and there are many families."""
        choosy = nodepool_manifest(requirements=[expression(FAMILY, "Exists", minValues=4)])
        apart = relaxation(apart=(wish_about("web", FAMILY),))
        spread_out = relaxation(topologySpreadConstraints=spread(FAMILY, hard=False))

        decided = plan(apart if kind == "anti-affinity" else spread_out, 2, pools=[choosy])

        assert not decided.unplaced
        assert sum(len(n.claim.nominated) for n in decided.nodes) == 2


SOFT = {"key": "dear", "effect": "PreferNoSchedule"}


def tainted(**fields: Any) -> dict[str, Any]:
    return nodepool_manifest("tainted", weight=9, taints=[SOFT], **fields)


def sellers(decided: Plan) -> Counter[str]:
    """Count pods by the NodePool of their new node."""
    assert not decided.unplaced
    return Counter(n.claim.nodepool for n in decided.nodes for _ in n.claim.nominated)


class TestSoftTaints:
    def test_soft_taints_are_avoided_when_nodes_are_bought_whatever_the_weights(self) -> None:
        assert sellers(plan(shape(), 2, pools=[tainted(), nodepool_manifest()])) == {"default": 2}

    def test_soft_taints_do_not_stop_pods_without_an_alternative(self) -> None:
        assert sellers(plan(shape(), 2, pools=[tainted()])) == {"tainted": 2}

    def test_a_node_with_the_taint_is_bought_if_no_other_nodepool_can(self) -> None:
        little = nodepool_manifest(limits={"cpu": "2"})

        bought = sellers(plan(shape("1500m"), 3, pools=[tainted(), little]))

        assert bought == {"default": 1, "tainted": 2}

    def test_pods_that_tolerate_soft_taints_go_by_weight(self) -> None:
        tolerant = shape(tolerations=[{"key": "dear", "operator": "Exists"}])

        assert sellers(plan(tolerant, 2, pools=[tainted(), nodepool_manifest()])) == {"tainted": 2}

    def test_soft_taints_are_the_last_preference_to_be_dropped(self) -> None:
        only_b = nodepool_manifest(requirements=[expression(ZONE, "In", B)])

        decided = plan(relaxation(wish_for(ZONE, A)), 1, pools=[tainted(), only_b])

        assert zones(decided) == [{B}]

    def test_no_node_is_bought_to_avoid_an_existing_node_with_a_soft_taint(self) -> None:
        """kube-scheduler would bind the pods to it long before the new node is ready."""
        there = node(taints=[Taint("dear", "PreferNoSchedule")])

        decided = plan(shape(), 2, pools=[nodepool_manifest()], nodes=[there])

        assert decided.placed == {"node-1": ("default/web-0000", "default/web-0001")}

    def test_soft_taints_do_not_count_under_ignore(self) -> None:
        decided = plan(shape(), 2, PreferencePolicy.IGNORE, pools=[tainted(), nodepool_manifest()])

        assert sellers(decided) == {"tainted": 2}


class TestIgnore:
    IGNORE = PreferencePolicy.IGNORE

    def test_preferences_about_other_pods_cost_no_node(self) -> None:
        both = (wish_about("web", ZONE), wish_about("web", HOSTNAME))
        some = relaxation(apart=both, topologySpreadConstraints=spread(HOSTNAME, hard=False))
        free = plan(shape(), 4, self.IGNORE)

        decided = plan(some, 4, self.IGNORE)

        assert decided.price_hourly_usd == pytest.approx(free.price_hourly_usd)

    def test_a_preference_never_raises_the_price(self) -> None:
        assert (
            plan(relaxation(wish_for(CAPACITY, "on-demand")), 1, self.IGNORE).nodes[0].request.capacity_type
            == "spot"
        )
        assert (
            plan(relaxation(wish_for(CAPACITY, "on-demand")), 1).nodes[0].request.capacity_type == "on-demand"
        )

    def test_existing_capacity_is_used_even_if_it_does_not_meet_a_preference(self) -> None:
        decided = plan(relaxation(wish_for(ZONE, B)), 1, self.IGNORE, nodes=[node("n-a", zone=A)])

        assert not decided.nodes


def test_preferred_spreads_are_rules_of_which_the_first_is_given_up_first() -> None:
    wishful = shape(
        topologySpreadConstraints=[
            *spread(HOSTNAME, hard=False),
            *spread(CAPACITY, hard=True),
            *spread(ZONE, hard=False),
        ]
    )

    tried = variants(wishful, PreferencePolicy.RESPECT, TemplateLaunching(()))

    assert [[one.topology_key for one in each.spreads if one.hard] for each in tried] == [
        [HOSTNAME, CAPACITY, ZONE],
        [CAPACITY, ZONE],
        [CAPACITY],
    ]
    assert tried[-1] is wishful
