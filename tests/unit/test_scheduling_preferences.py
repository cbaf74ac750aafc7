"""Wishes of pods: rules for as long as they can be kept, or nothing that may cost anything."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.taints import Taint
from nodesmith.model.kubernetes.shapes import Shape
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.model.policies import PreferencePolicy
from tests.builders import ZONES, expression, inputs, node, nodepool_manifest, pods, shape, snapshot, spread

ZONE, HOSTNAME, CAPACITY = (
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "karpenter.sh/capacity-type",
)
A, B, C = ZONES
WISH = "preferredDuringSchedulingIgnoredDuringExecution"


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
        "nodeAffinity": {WISH: list(nodes)},
        "podAffinity": {WISH: list(near)},
        "podAntiAffinity": {WISH: list(apart)},
    }
    return shape(affinity=affinity, **spec)


def plan(of: Shape, count: int, policy: PreferencePolicy = PreferencePolicy.RESPECT, **fields: Any) -> Plan:
    seen = snapshot(pods=pods(of, count), nodepools=fields.pop("pools", [nodepool_manifest()]), **fields)
    return decide(inputs(snapshot=seen, settings=NodeSettings(preference_policy=policy)))


def zones(decided: Plan) -> list[set[str]]:
    return [{o.zone for o in n.request.overrides} for n in decided.nodes]


class TestRespect:
    def test_preferred_node_affinity_is_kept(self) -> None:
        assert {zone for each in zones(plan(relaxation(wish_for(ZONE, B)), 2)) for zone in each} == {B}

    def test_the_heaviest_term_counts_and_one_that_cannot_be_had_gives_way_to_the_next(self) -> None:
        decided = plan(
            relaxation(wish_for(ZONE, "nowhere", weight=9), wish_for(ZONE, C, weight=5), wish_for(ZONE, A)), 1
        )

        assert zones(decided) == [{C}]

    def test_a_wish_that_nothing_meets_is_given_up(self) -> None:
        assert len(plan(relaxation(wish_for("example.com/rack", "1")), 1).nodes) == 1

    def test_preferred_anti_affinity_over_hostnames_costs_nodes(self) -> None:
        decided = plan(relaxation(apart=(wish_about("web", HOSTNAME),)), 3)

        assert [len(n.claim.nominated) for n in decided.nodes] == [1, 1, 1]

    def test_preferred_anti_affinity_over_zones_is_kept_by_as_many_as_there_are_zones(self) -> None:
        decided = plan(relaxation(apart=(wish_about("web", ZONE),), requests={"cpu": "3"}), 5)

        assert not decided.unplaced
        assert {z for each in zones(decided) for z in each} >= {A, B, C}

    def test_preferred_affinity_is_kept_where_there_is_somebody_and_given_up_where_not(self) -> None:
        alone = plan(relaxation(near=(wish_about("db", ZONE),)), 2)
        together = plan(relaxation(near=(wish_about("web", ZONE),), requests={"cpu": "3"}), 9)

        assert not alone.unplaced
        assert len({frozenset(z) for z in zones(together)}) == 1
        assert all(len(z) == 1 for z in zones(together))

    def test_the_heaviest_wish_is_given_up_first(self) -> None:
        both = (wish_about("web", ZONE, weight=10), wish_about("web", HOSTNAME))

        decided = plan(relaxation(wish_for(ZONE, A), apart=both), 4)

        assert zones(decided) == [{A}] * 4
        assert [len(n.claim.nominated) for n in decided.nodes] == [1] * 4

    def test_what_a_limit_forbids_is_bought_without_the_wish(self) -> None:
        only_a = nodepool_manifest("a", requirements=[expression(ZONE, "In", A)], limits={"cpu": "0"})
        elsewhere = nodepool_manifest("b", requirements=[expression(ZONE, "In", B)])

        decided = plan(relaxation(wish_for(ZONE, A)), 1, pools=[only_a, elsewhere])

        assert zones(decided) == [{B}]


SOFT = {"key": "dear", "effect": "PreferNoSchedule"}


def tainted(**fields: Any) -> dict[str, Any]:
    return nodepool_manifest("tainted", weight=9, taints=[SOFT], **fields)


def sellers(decided: Plan) -> Counter[str]:
    """Count pods by the NodePool that their node is bought from."""
    assert not decided.unplaced
    return Counter(n.claim.nodepool for n in decided.nodes for _ in n.claim.nominated)


class TestSoftTaints:
    def test_they_are_avoided_where_nodes_are_bought_whatever_the_weights(self) -> None:
        assert sellers(plan(shape(), 2, pools=[tainted(), nodepool_manifest()])) == {"default": 2}

    def test_they_stop_nobody_where_there_is_nothing_else(self) -> None:
        assert sellers(plan(shape(), 2, pools=[tainted()])) == {"tainted": 2}

    def test_what_no_other_nodepool_may_sell_is_bought_with_the_taint(self) -> None:
        little = nodepool_manifest(limits={"cpu": "2"})

        bought = sellers(plan(shape("1500m"), 3, pools=[tainted(), little]))

        assert bought == {"default": 1, "tainted": 2}

    def test_who_tolerates_them_goes_by_weight(self) -> None:
        tolerant = shape(tolerations=[{"key": "dear", "operator": "Exists"}])

        assert sellers(plan(tolerant, 2, pools=[tainted(), nodepool_manifest()])) == {"tainted": 2}

    def test_they_are_the_last_wish_to_be_given_up(self) -> None:
        only_b = nodepool_manifest(requirements=[expression(ZONE, "In", B)])

        decided = plan(relaxation(wish_for(ZONE, A)), 1, pools=[tainted(), only_b])

        assert zones(decided) == [{B}]

    def test_no_node_is_bought_to_avoid_one_that_is_there(self) -> None:
        """kube-scheduler would bind the pods to it long before the new one has come."""
        there = node(taints=[Taint("dear", "PreferNoSchedule")])

        decided = plan(shape(), 2, pools=[nodepool_manifest()], nodes=[there])

        assert decided.placed == {"node-1": ("default/web-0000", "default/web-0001")}

    def test_under_ignore_they_are_nothing(self) -> None:
        decided = plan(shape(), 2, PreferencePolicy.IGNORE, pools=[tainted(), nodepool_manifest()])

        assert sellers(decided) == {"tainted": 2}


class TestIgnore:
    IGNORE = PreferencePolicy.IGNORE

    def test_wishes_about_other_pods_cost_no_node(self) -> None:
        both = (wish_about("web", ZONE), wish_about("web", HOSTNAME))
        some = relaxation(apart=both, topologySpreadConstraints=spread(HOSTNAME, hard=False))
        free = plan(shape(), 4, self.IGNORE)

        decided = plan(some, 4, self.IGNORE)

        assert decided.price_hourly_usd == pytest.approx(free.price_hourly_usd)

    def test_a_dearer_choice_is_not_taken_for_a_wish(self) -> None:
        assert (
            plan(relaxation(wish_for(CAPACITY, "on-demand")), 1, self.IGNORE).nodes[0].request.capacity_type
            == "spot"
        )
        assert (
            plan(relaxation(wish_for(CAPACITY, "on-demand")), 1).nodes[0].request.capacity_type == "on-demand"
        )

    def test_room_that_does_not_meet_a_wish_is_used(self) -> None:
        decided = plan(relaxation(wish_for(ZONE, B)), 1, self.IGNORE, nodes=[node("n-a", zone=A)])

        assert not decided.nodes
