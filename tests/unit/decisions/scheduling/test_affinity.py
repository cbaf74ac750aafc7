"""Pods that must be near other pods, or must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests.builders import (
    EXPRESS,
    ZONES,
    bind,
    catalog,
    expression,
    inputs,
    node,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)

ZONE, HOSTNAME, TEAM = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "example.com/team"
CAPACITY, ARCH = "karpenter.sh/capacity-type", "kubernetes.io/arch"
A, B, C = ZONES
KINDS = {t.name: t for t in instance_types(catalog(), NodeConfiguration())}


def near(app: str, key: str = ZONE, *, anti: bool = False) -> dict[str, Any]:
    kind = "podAntiAffinity" if anti else "podAffinity"
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def apart(app: str, key: str = ZONE) -> dict[str, Any]:
    return near(app, key, anti=True)


def plan(
    *shapes: tuple[Shape, int],
    pool: Mapping[str, Any] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> Plan:
    some = [pod for of, count in shapes for pod in pods(of, count)]
    running = fields.pop("running", [])
    pools = [pool or nodepool_manifest(), *others]
    return decide(inputs(snapshot=snapshot(pods=[*some, *running], nodepools=pools, **fields)))


def zones(decided: Plan, app: str, nodes: Sequence[Any] = ()) -> Counter[str]:
    """Count the pods of an app by zone; a new node that may be in several zones counts as `any`."""
    found: Counter[str] = Counter()
    for planned in decided.nodes:
        where = {o.zone for o in planned.request.overrides}
        found[where.pop() if len(where) == 1 else "any"] += held(planned.claim.nominated, app)
    labels = {n.name: n.labels[ZONE] for n in nodes}
    for name, keys in (decided.placed or {}).items():
        found[labels[name]] += held(keys, app)
    return +found


def held(keys: Sequence[str], app: str) -> int:
    return sum(key.startswith(f"default/{app}-") for key in keys)


def why(decided: Plan, app: str) -> str:
    return "; ".join(u.cause.text for u in decided.unplaced if any(held([key], app) for key in u.pods))


class TestAffinityOverZones:
    def test_pods_go_to_the_zone_of_the_pods_that_they_must_be_near(self) -> None:
        there = node("n-b", zone=B, cpu="1")

        decided = plan(
            (shape(app="web", affinity=near("db")), 3), nodes=[there], running=bind(shape(app="db"), "n-b")
        )

        assert zones(decided, "web") == {B: 3}

    def test_capacity_in_that_zone_is_used_and_none_elsewhere(self) -> None:
        nodes = [node("n-a", zone=A), node("n-b", zone=B, cpu="2")]

        decided = plan(
            (shape(app="web", affinity=near("db")), 3), nodes=nodes, running=bind(shape(app="db"), "n-b")
        )

        assert held((decided.placed or {})["n-b"], "web") == 1
        assert "n-a" not in (decided.placed or {})
        assert zones(decided, "web", nodes) == {B: 3}

    def test_the_first_of_pods_that_match_their_own_term_may_go_anywhere_and_the_others_follow(self) -> None:
        decided = plan((shape(affinity=near("web")), 5), (shape("2", affinity=near("web")), 2))

        assert not decided.unplaced
        assert len(zones(decided, "web")) == 1

    def test_the_first_pod_goes_where_it_is_cheapest(self) -> None:
        decided = plan((shape("4", "30Gi", affinity=near("web")), 3))
        free = plan((shape("4", "30Gi"), 3))

        assert decided.price_hourly_usd == pytest.approx(free.price_hourly_usd, rel=0.02)

    def test_the_first_pod_goes_where_all_its_followers_can_go(self) -> None:
        only_c = shape("2", affinity=near("web"), nodeSelector={ZONE: C})

        decided = plan((shape("4", affinity=near("web")), 2), (only_c, 1))

        assert zones(decided, "web") == {C: 3}

    def test_chains_are_followed_link_by_link_however_they_are_sorted(self) -> None:
        decided = plan(
            (shape("4", app="a", affinity=near("b")), 1),
            (shape("2", app="b", affinity=near("c")), 1),
            (shape("1", app="c", nodeSelector={ZONE: B}), 1),
        )

        assert not decided.unplaced
        assert [set(zones(decided, app)) for app in "abc"] == [{B}, {B}, {B}]

    def test_a_cycle_of_pods_that_wait_for_each_other_is_reported(self) -> None:
        decided = plan(
            (shape(app="a", affinity=near("b")), 1), (shape(app="b", affinity=near("a")), 1), (shape(), 1)
        )

        waits = "which in turn wait for these: none can be the first"
        assert f"they must be with pods that match app In [b], {waits}" in why(decided, "a")
        assert f"they must be with pods that match app In [a], {waits}" in why(decided, "b")
        assert zones(decided, "web").total() == 1

    def test_a_pod_that_waits_for_a_cycle_is_not_reported_as_part_of_it(self) -> None:
        decided = plan(
            (shape(app="a", affinity=near("b")), 1),
            (shape(app="b", affinity=near("a")), 1),
            (shape(affinity=near("a")), 1),
        )

        assert "with pods that match app In [a], which wait for other pods" in why(decided, "web")

    def test_pods_without_a_place_cannot_be_followed(self) -> None:
        decided = plan((shape("5000", app="huge"), 1), (shape(affinity=near("huge")), 1))

        assert "no pod that matches app In [huge] is, or will be, on a node with that label" in why(
            decided, "web"
        )

    def test_a_missing_leader_is_reported(self) -> None:
        assert "no pod anywhere matches app In [db]" in why(plan((shape(affinity=near("db")), 1)), "web")

    def test_the_reason_names_the_zone_of_the_leaders_where_nothing_can_be_launched(self) -> None:
        there = node("n-b", zone=B, cpu="1")
        web = shape(affinity=near("db"), nodeSelector={ZONE: A})

        decided = plan((web, 1), nodes=[there], running=bind(shape(app="db"), "n-b"))

        assert f"matching pods are only in {B}" in why(decided, "web")

    def test_one_pod_must_match_both_terms(self) -> None:
        both = near("db")
        terms = both["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms.append({"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}})
        nodes = [node("n-a", cpu="1", zone=A)]
        running = bind(shape(app="db"), "n-a") + bind(shape("0", app="cache"), "n-a")

        said = why(plan((shape(affinity=both), 1), nodes=nodes, running=running), "web")

        assert "no pod anywhere matches app In [db] and app In [cache] at once" in said


class TestAntiAffinityOverAnyKey:
    def test_anti_affinity_to_themselves_allows_one_pod_a_zone_and_the_rest_get_a_reason(self) -> None:
        decided = plan((shape(affinity=apart("web")), 5))

        assert zones(decided, "web") == {A: 1, B: 1, C: 1}
        assert "required pod anti-affinity over topology.kubernetes.io/zone" in why(decided, "web")

    @pytest.mark.parametrize("running", [False, True])
    def test_anti_affinity_keeps_pods_out_of_the_zones_of_the_pods_it_selects(self, running: bool) -> None:
        shy, web = shape(app="shy", affinity=apart("web")), shape(nodeSelector={ZONE: A})
        nodes = [node("n-a", cpu="1")]

        decided = (
            plan((shy, 2), nodes=nodes, running=bind(web, "n-a")) if running else plan((shy, 2), (web, 2))
        )

        assert A not in zones(decided, "shy")
        assert zones(decided, "shy").total() == 2

    @pytest.mark.parametrize("running", [False, True])
    def test_anti_affinity_of_others_keeps_pods_out_of_their_zones(self, running: bool) -> None:
        shy, web = shape("2", app="shy", affinity=apart("web"), nodeSelector={ZONE: A}), shape()
        nodes = [node("n-a", cpu="9")]

        decided = (
            plan((web, 3), nodes=nodes, running=bind(shy, "n-a")) if running else plan((shy, 1), (web, 3))
        )

        assert not decided.unplaced
        assert A not in zones(decided, "web", nodes)

    def test_a_reason_is_given_when_no_zone_is_left(self) -> None:
        shy, web = shape("2", app="shy", affinity=apart("web")), shape(nodeSelector={ZONE: A})

        decided = plan((web, 1), nodes=[node("n-a", cpu="2")], running=bind(shy, "n-a"))

        assert "anti-affinity of other pods over topology.kubernetes.io/zone" in why(decided, "web")

    def test_labels_that_only_the_nodepool_has_are_domains_too(self) -> None:
        pool = nodepool_manifest(requirements=(*EXPRESS, expression(TEAM, "In", "x", "y")))

        decided = plan((shape("100m", affinity=apart("web", TEAM)), 3), pool=pool)

        assert sorted(n.claim.labels[TEAM] for n in decided.nodes) == ["x", "y"]
        assert len(decided.unplaced[0].pods) == 1

    def test_capacity_types_are_domains_too(self) -> None:
        decided = plan((shape(affinity=apart("web", CAPACITY)), 3))

        assert sorted(n.request.capacity_type for n in decided.nodes) == ["on-demand", "spot"]


class TestSpreadOverAnyKey:
    def over(self, key: str, **more: Any) -> dict[str, Any]:
        return {**spread(key, hard=True)[0], **more}

    def test_pods_spread_over_a_label_whose_values_the_nodepool_lists(self) -> None:
        pool = nodepool_manifest(requirements=(*EXPRESS, expression(TEAM, "In", "x", "y", "z")))

        decided = plan((shape(topologySpreadConstraints=[self.over(TEAM)]), 7), pool=pool)

        per_team: Counter[str] = Counter()
        for planned in decided.nodes:
            per_team[planned.claim.labels[TEAM]] += len(planned.claim.nominated)
        assert sorted(per_team.values()) == [2, 2, 3]

    def test_pods_spread_over_capacity_types_and_zones_at_once(self) -> None:
        both = [self.over(CAPACITY), self.over(ZONE)]

        decided = plan((shape(topologySpreadConstraints=both), 12))

        bought: Counter[str] = Counter()
        for planned in decided.nodes:
            bought[planned.request.capacity_type] += len(planned.claim.nominated)
        assert bought == {"spot": 6, "on-demand": 6}
        assert zones(decided, "web") == {A: 4, B: 4, C: 4}

    def test_pods_spread_over_architectures(self) -> None:
        pool = nodepool_manifest(requirements=(expression(ARCH, "In", "amd64", "arm64"), *EXPRESS[:2]))

        decided = plan((shape(topologySpreadConstraints=[self.over(ARCH)]), 8), pool=pool)

        per_arch: Counter[str] = Counter()
        for planned in decided.nodes:
            (arch,) = {KINDS[o.instance_type].labels[ARCH] for o in planned.request.overrides}
            per_arch[arch] += len(planned.claim.nominated)
        assert per_arch == {"amd64": 4, "arm64": 4}

    def test_the_reason_names_a_key_that_no_node_has(self) -> None:
        decided = plan((shape(topologySpreadConstraints=[self.over("example.com/rack")]), 2))

        assert "topology spread over example.com/rack: no node has that label" in why(decided, "web")

    def test_pods_without_rules_that_a_spread_counts_are_counted_where_they_go(self) -> None:
        web = shape("2", topologySpreadConstraints=[self.over(ZONE)])

        decided = plan((web, 3), (shape("1"), 4))

        assert max(zones(decided, "web").values()) - min(zones(decided, "web").values()) <= 1
        assert "any" not in zones(decided, "web")


class TestSharingANode:
    def test_pods_that_must_share_a_node_with_each_other_go_to_one(self) -> None:
        decided = plan((shape("3", affinity=near("web", HOSTNAME)), 6))

        assert [len(n.claim.nominated) for n in decided.nodes] == [6]

    def test_only_as_many_as_one_node_holds_get_a_place(self) -> None:
        eight = (expression("karpenter.k8s.aws/instance-cpu", "In", "8"), *EXPRESS)
        web = shape("1500m", affinity=near("web", HOSTNAME))

        decided = plan((web, 7), pool=nodepool_manifest(requirements=eight))

        assert [len(n.claim.nominated) for n in decided.nodes] == [5]
        assert "all must share one node, and none holds more than 5" in why(decided, "web")

    def test_an_existing_node_that_holds_all_of_them_is_used(self) -> None:
        nodes = [node("small", cpu="2"), node("large", cpu="8")]

        decided = plan((shape(affinity=near("web", HOSTNAME)), 6), nodes=nodes)

        assert {name: len(keys) for name, keys in (decided.placed or {}).items()} == {"large": 6}

    def test_they_go_to_the_node_of_their_leaders_and_nowhere_else(self) -> None:
        web = shape(affinity=near("web", HOSTNAME))
        nodes = [node("there", cpu="3"), node("other", cpu="8")]

        decided = plan((web, 4), nodes=nodes, running=bind(web, "there"))

        assert {name: len(keys) for name, keys in (decided.placed or {}).items()} == {"there": 2}
        assert "the nodes with matching pods have no room" in why(decided, "web")

    def test_each_pod_shares_a_node_with_one_that_it_follows(self) -> None:
        cache = shape("100m", app="cache", affinity=apart("cache", HOSTNAME))
        web = shape("1", affinity=near("cache", HOSTNAME))

        decided = plan((cache, 3), (web, 7))

        assert not decided.unplaced
        for planned in decided.nodes:
            assert held(planned.claim.nominated, "cache") == 1
        assert sum(held(n.claim.nominated, "web") for n in decided.nodes) == 7

    def test_a_chain_shares_one_node(self) -> None:
        decided = plan(
            (shape("2", app="a", affinity=near("b", HOSTNAME)), 1),
            (shape("1", app="b", affinity=near("c", HOSTNAME)), 1),
            (shape("500m", app="c"), 1),
        )

        assert [len(n.claim.nominated) for n in decided.nodes] == [3]

    def test_pods_that_share_a_node_still_keep_their_other_rules(self) -> None:
        both = {**near("web", HOSTNAME), **apart("web")}

        decided = plan((shape(affinity=both), 3))

        assert [len(n.claim.nominated) for n in decided.nodes] == [1]
        assert sum(len(u.pods) for u in decided.unplaced) == 2


class TestDomains:
    def test_anti_affinity_allows_nodes_without_the_label(self) -> None:
        pools = [
            nodepool_manifest("racked", labels={"example.com/rack": "1"}, weight=9),
            nodepool_manifest("plain"),
        ]
        some = pods(shape(affinity=apart("web", "example.com/rack")), 4)

        decided = decide(inputs(snapshot=snapshot(pods=some, nodepools=pools)))

        assert not decided.unplaced
        assert Counter(n.claim.nodepool for n in decided.nodes for _ in n.claim.nominated) == {
            "racked": 1,
            "plain": 3,
        }

    def test_a_node_without_one_of_the_keys_counts_for_none_of_the_spreads(self) -> None:
        racks = {"example.com/rack": "1"}
        constraints = [spread(ZONE, hard=True)[0], spread("example.com/rack", hard=True)[0]]
        pool = nodepool_manifest(labels=racks, requirements=(*EXPRESS, expression(ZONE, "In", A)))

        decided = plan(
            (shape(topologySpreadConstraints=constraints), 4), pool=pool, nodes=[node("n-c", zone=C, cpu="1")]
        )

        assert not decided.unplaced

    def test_a_domain_in_which_no_node_is_bought_stops_blocking_the_others(self) -> None:
        tainted = nodepool_manifest(
            "tainted",
            requirements=(*EXPRESS, expression(ZONE, "In", B)),
            taints=[{"key": "dedicated", "effect": "NoSchedule"}],
        )
        open_ = nodepool_manifest("open", requirements=(*EXPRESS, expression(ZONE, "In", A)))
        web = shape("1", topologySpreadConstraints=spread(ZONE, hard=True))
        batch = shape("2", app="batch", tolerations=[{"operator": "Exists"}], nodeSelector={ZONE: B})

        alone = decide(inputs(snapshot=snapshot(pods=pods(web, 3), nodepools=[tainted, open_])))
        beside = decide(
            inputs(snapshot=snapshot(pods=pods(web, 3) + pods(batch), nodepools=[tainted, open_]))
        )

        assert zones(alone, "web") == {A: 3}
        assert zones(beside, "web") == {A: 1}

    def test_capacity_that_rules_forbid_stays_unused_even_if_nothing_can_be_launched(self) -> None:
        constraint = spread("example.com/rack", hard=True, app="db")

        decided = plan((shape("1000", topologySpreadConstraints=constraint), 1), nodes=[node(cpu="2000")])

        assert not decided.placed


def test_a_zone_closed_to_followers_blocks_them_only_while_it_has_a_node() -> None:
    """In zone c only another team has nodes. Without such a node, kube-scheduler does not know that zone."""
    red = nodepool_manifest("red", requirements=[expression(ZONE, "In", A, B)], labels={TEAM: "red"})
    blue = nodepool_manifest("blue", requirements=[expression(ZONE, "In", C)], labels={TEAM: "blue"})
    there = node("n-a", zone=A, labels={TEAM: "red"}, cpu="0")
    running = bind(shape(app="leader"), "n-a")
    spreading = shape("1", affinity=near("leader", TEAM), topologySpreadConstraints=spread(hard=True))

    for nodes, most in (([there], 4), ([there, node("n-c", zone=C, labels={TEAM: "blue"})], 2)):
        decided = plan((spreading, 4), pool=red, others=[blue], nodes=nodes, running=running)

        assert sum(len(one.claim.nominated) for one in decided.nodes) == most
        assert len(zones(decided, "web")) == 2
