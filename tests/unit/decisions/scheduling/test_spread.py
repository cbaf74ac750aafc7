"""Zones: how many pods each gets, by kube-scheduler's arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.provisioning.reasons import by_rule
from nodesmith.decisions.scheduling.assign import assign
from nodesmith.decisions.scheduling.demands import Assignment, Choices, Demand, UnavailableDomains, by_shape
from nodesmith.decisions.scheduling.existing import existing_nodes
from nodesmith.decisions.scheduling.topologyspread import Domain, Tally, share_out
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import HOSTNAME, ZONE, Taint, Toleration
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.policies import PreferencePolicy
from tests.builders import (
    ZONES,
    anti_affinity,
    bind,
    expression,
    node,
    node_affinity,
    pods,
    shape,
    snapshot,
    spread,
)

A, B, C = ZONES


def shares(
    count: int,
    found: dict[str, int],
    launchable: str = "abc",
    existing: dict[str, int] | None = None,
    *,
    hard: bool = True,
    app: str = "web",
    **more: Any,
) -> dict[str, int]:
    """Share out pods of `web`; zones have one-letter names."""
    constraint = {**spread(hard=hard, app=app)[0], **more}
    web = shape(topologySpreadConstraints=[constraint])
    counts = {**dict.fromkeys(launchable, 0), **found}
    tally = Tally(0, counts, counts_self=app == "web", spread=web.spreads[0] if hard else None)
    places = dict(sorted({**(existing or {}), **dict.fromkeys(launchable)}.items()))
    shared = share_out(count, [tally], {(zone,): most for zone, most in places.items()})
    return {zone: share for (zone,), share in shared.items() if share}


@pytest.mark.parametrize(
    ("count", "found", "launchable", "expected"),
    [
        pytest.param(6, {}, "abc", {"a": 2, "b": 2, "c": 2}, id="evenly"),
        pytest.param(5, {}, "abc", {"a": 2, "b": 2, "c": 1}, id="the rest goes by name"),
        pytest.param(4, {"a": 2}, "abc", {"b": 2, "c": 2}, id="those that have fewer come first"),
        pytest.param(6, {"a": 2}, "abc", {"a": 1, "b": 3, "c": 2}, id="then all alike"),
        pytest.param(
            5, {"c": 0}, "ab", {"a": 1, "b": 1}, id="a zone that is stuck at 0 holds the others at 1"
        ),
        pytest.param(
            5, {"c": 2}, "ab", {"a": 3, "b": 2}, id="a zone that is stuck at 2 holds the others at 3"
        ),
        pytest.param(3, {}, "a", {"a": 3}, id="one zone is no spread"),
        pytest.param(3, {}, "", {}, id="no zone"),
    ],
)
def test_pods_go_to_the_zone_with_the_fewest_within_the_skew(
    count: int, found: dict[str, int], launchable: str, expected: dict[str, int]
) -> None:
    assert shares(count, found, launchable) == expected


@pytest.mark.parametrize(("skew", "expected"), [(1, {"a": 1}), (2, {"a": 2}), (5, {"a": 5})])
def test_the_skew_limits_how_far_a_zone_exceeds_the_fewest(skew: int, expected: dict[str, int]) -> None:
    assert shares(9, {"b": 0}, "a", maxSkew=skew) == expected


@pytest.mark.parametrize(
    ("least", "expected"),
    [(1, {"a": 2, "b": 2}), (2, {"a": 2, "b": 2}), (3, {"a": 1, "b": 1})],
)
def test_with_fewer_zones_than_min_domains_none_may_have_more_than_the_skew(
    least: int, expected: dict[str, int]
) -> None:
    assert shares(4, {}, "ab", minDomains=least) == expected


def test_a_full_zone_takes_no_more_pods_and_limits_the_others() -> None:
    assert shares(9, {"c": 0}, "ab", {"c": 1}) == {"a": 2, "b": 2, "c": 1}


def test_a_spread_over_other_pods_lets_any_number_into_zones_within_the_skew() -> None:
    assert shares(4, {"a": 1, "b": 3, "c": 1}, app="db") == {"a": 4}


def test_a_preferred_spread_orders_zones_and_excludes_none() -> None:
    assert shares(5, {"c": 0}, "ab", hard=False) == {"a": 3, "b": 2}
    assert shares(2, {"a": 7}, "ab", hard=False) == {"b": 2}


def test_domains_with_the_same_counted_value_share_their_pods() -> None:
    pairs: dict[Domain, int | None] = {("spot", "a"): None, ("on-demand", "a"): None, ("spot", "b"): None}

    apart = share_out(5, [Tally(1, {"a": 0, "b": 0}, counts_self=True, most=1)], pairs)

    assert apart == {("spot", "a"): 1, ("on-demand", "a"): 0, ("spot", "b"): 1}


class Zones:
    """Offerings of nodes of every size, in some zones at the same price."""

    scarce_zones: frozenset[str] = frozenset()

    def __init__(self, zones: Sequence[str]) -> None:
        self.zones = zones

    def softly_tainted(self, shape: Shape) -> bool:
        del shape
        return False

    def refusing(self, tolerations: tuple[Toleration, ...]) -> frozenset[str]:
        del tolerations
        return frozenset()

    def domains(self, shape: Shape, keys: tuple[str, ...]) -> list[Domain]:
        del shape
        if not keys:
            return [()] if self.zones else []
        return [(zone,) for zone in self.zones] if keys == (ZONE,) else []

    def price(self, shape: Shape, keys: tuple[str, ...], domain: Domain) -> float:
        del shape, keys, domain
        return 1.0


def assigned(
    some: Sequence[Pod],
    nodes: Sequence[Node] = (),
    running: Sequence[Pod] = (),
    zones: tuple[str, ...] = ZONES,
    policy: PreferencePolicy = PreferencePolicy.RESPECT,
    choices: Choices | None = None,
) -> Assignment:
    """Assign pods where nodes of every size can be launched in `zones`."""
    there = existing_nodes(snapshot(nodes=nodes, pods=running), ())
    return assign(some, there, Zones(zones), policy=policy, choices=choices)


def demanded(result: Assignment) -> dict[str | None, int]:
    found: Counter[str | None] = Counter()
    for demand in result.demands:
        found[demand.zone] += len(demand.pods)
    return dict(found)


def near(app: str, key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def hard(**more: Any) -> list[dict[str, Any]]:
    return [{**spread(hard=True)[0], **more}]


def test_pods_without_a_spread_may_be_bought_for_anywhere() -> None:
    assert demanded(assigned(pods(shape(), 5))) == {None: 5}


def test_existing_capacity_is_used_before_anything_is_bought() -> None:
    result = assigned(pods(shape(), 6), [node("full", cpu="1"), node("free")])

    assert {name: len(keys) for name, keys in result.placed.items()} == {"free": 4, "full": 1}
    assert demanded(result) == {None: 1}


@pytest.mark.parametrize(("option", "expected"), [(0, 3), (1, 0), (2, 2), (3, 1)])
@pytest.mark.parametrize("spreads", [[], spread(hard=True)])
def test_a_node_gets_the_chosen_number_of_pods_and_the_rest_stays_in_its_zone(
    spreads: list[dict[str, Any]], option: int, expected: int
) -> None:
    to_its_like = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [to_its_like]}}
    web = shape(affinity=affinity, topologySpreadConstraints=spreads)
    there, old = node("there"), bind(shape("1"), "there")

    chosen = Choices({("capacity", web, "there"): option})
    result = assigned(pods(web, 6), [there], old, zones=(A,), choices=chosen)

    assert len(result.placed.get("there", ())) == expected
    assert demanded(result) == {}


def test_larger_pods_choose_first_then_older_ones() -> None:
    small, large, fat = shape("1", app="s"), shape("2", app="l"), shape("1", "1Gi", app="f")

    order = [of.labels["app"] for of, _ in by_shape(pods(small, 2) + pods(fat) + pods(large))]

    assert order == ["l", "f", "s"]


def test_a_hard_spread_counts_the_pods_that_run() -> None:
    web = shape(topologySpreadConstraints=hard())
    running = bind(web, "n-a", 2) + bind(web, "n-b", 1)

    result = assigned(pods(web, 3), [node("n-a", cpu="0", zone=A), node("n-b", cpu="0", zone=B)], running)

    assert demanded(result) == {B: 1, C: 2}


def test_pods_of_another_namespace_or_of_another_app_are_not_counted() -> None:
    web = shape(topologySpreadConstraints=hard())
    others = bind(shape(namespace="other"), "n-a", 5) + bind(shape(app="db"), "n-a", 5)

    assert demanded(assigned(pods(web, 3), [node("n-a", cpu="0")], others)) == {A: 1, B: 1, C: 1}


def test_what_an_earlier_shape_gets_counts_for_the_next() -> None:
    big, small = (shape(cpu, topologySpreadConstraints=hard()) for cpu in ("2", "1"))

    result = assigned(pods(big, 1, prefix="big") + pods(small, 2, prefix="small"))

    assert [(d.shape is big, d.zone) for d in result.demands] == [(True, A), (False, B), (False, C)]


def test_later_pods_keep_the_spread_of_placed_pods_intact() -> None:
    """Both count each other; a skew of 3 would let five into a zone that holds a pod with a skew of 1."""
    nodes = [node("n-a", zone=A, cpu="8"), node("n-b", zone=B, cpu="1")]
    strict = shape("1", topologySpreadConstraints=hard())
    loose = shape("500m", topologySpreadConstraints=hard(maxSkew=3))

    result = assigned([*pods(strict, prefix="strict"), *pods(loose, 6)], nodes, zones=())

    assert "default/strict-0000" in result.placed["n-a"]
    assert {name: len(keys) for name, keys in result.placed.items()} == {"n-a": 3, "n-b": 2}


@pytest.mark.parametrize("others", [(), tuple(pods(shape("100m", app="db", affinity=near("db", ZONE))))])
def test_pods_that_a_spread_blocked_are_placed_once_later_pods_have_opened_a_zone(
    others: tuple[Pod, ...],
) -> None:
    """The second large pod must wait for the small one. Pods that follow neither change nothing about that."""
    nodes = [node("n-a", zone=A, cpu="8"), node("n-b", zone=B, cpu="1")]
    large, small = (shape(cpu, topologySpreadConstraints=hard()) for cpu in ("2", "500m"))

    some = [*pods(large, 2, prefix="large"), *pods(small, prefix="small"), *others]
    result = assigned(some, nodes, zones=())

    assert {"default/large-0000", "default/large-0001"} <= set(result.placed["n-a"])
    assert result.placed["n-b"] == ["default/small-0000"]
    assert not result.stuck
    assert result.given_up == 0


@pytest.mark.parametrize(("option", "expected"), [(0, [2, 2, 2]), (1, [0, 0, 6])])
def test_followers_spread_evenly_over_the_nodes_of_their_leaders_unless_a_choice_places_them_together(
    option: int, expected: list[int]
) -> None:
    cache = shape("100m", app="cache", affinity=anti_affinity("cache"))
    web = shape(affinity=near("cache", HOSTNAME))

    result = assigned([*pods(cache, 3), *pods(web, 6)], choices=Choices({("together", web): option}))

    units = [
        d.pods[start : start + d.unit] for d in result.demands for start in range(0, len(d.pods), d.unit)
    ]
    assert sorted(sum(pod.shape is web for pod in unit) for unit in units) == expected


def test_a_zone_without_launches_limits_the_others_and_is_named() -> None:
    web = shape(topologySpreadConstraints=hard())

    result = assigned(pods(web, 5), [node("n-c", cpu="0", zone=C)], zones=(A, B))

    assert demanded(result) == {A: 1, B: 1}
    ((stuck, why),) = result.stuck
    assert [p.key for p in stuck] == ["default/web-0002", "default/web-0003", "default/web-0004"]
    assert why == (
        f"topology spread over {ZONE} with maxSkew 1: {C} has 0 matching pods, no room, and nothing can be launched"
        " there"
    )


def test_existing_capacity_in_a_zone_without_launches_is_used() -> None:
    web = shape(topologySpreadConstraints=hard())

    result = assigned(pods(web, 5), [node("n-c", cpu="1", zone=C)], zones=(A, B))

    assert result.placed == {"n-c": ["default/web-0000"]}
    assert demanded(result) == {A: 2, B: 2}


@pytest.mark.parametrize(("policy", "expected"), [("Honor", {A: 2, B: 1}), ("Ignore", {A: 1, B: 1})])
def test_zones_that_the_pod_cannot_go_to_count_only_if_node_affinity_is_ignored(
    policy: str, expected: dict[str | None, int]
) -> None:
    web = shape(
        topologySpreadConstraints=hard(nodeAffinityPolicy=policy),
        affinity=node_affinity([expression(ZONE, "In", A, B)]),
    )

    assert demanded(assigned(pods(web, 3), [node("n-c", cpu="0", zone=C)], zones=(A, B))) == expected


@pytest.mark.parametrize(("policy", "expected"), [("Honor", {A: 2, B: 1}), ("Ignore", {A: 1, B: 1})])
def test_tainted_nodes_count_unless_taints_are_honoured(policy: str, expected: dict[str | None, int]) -> None:
    web = shape(topologySpreadConstraints=hard(nodeTaintsPolicy=policy))
    tainted = node("n-c", zone=C, taints=[Taint("dedicated", "NoSchedule")])

    assert demanded(assigned(pods(web, 3), [tainted], zones=(A, B))) == expected


def test_match_label_keys_count_only_pods_of_the_same_revision() -> None:
    web = shape(app="v2", topologySpreadConstraints=hard(labelSelector={}, matchLabelKeys=["app"]))
    old = bind(shape(app="v1"), "n-a", 3)

    assert demanded(assigned(pods(web, 3), [node("n-a", cpu="0")], old)) == {A: 1, B: 1, C: 1}


def test_a_node_without_a_zone_takes_no_pods_of_a_hard_spread() -> None:
    nowhere = replace(node("nowhere"), labels={})
    web = shape(topologySpreadConstraints=hard())

    assert not assigned(pods(web, 1), [nowhere]).placed


def test_a_preferred_spread_holds_as_long_as_possible() -> None:
    web = shape(topologySpreadConstraints=spread(hard=False))

    result = assigned(pods(web, 8), [node("n-a", zone=A)])

    assert len(result.placed["n-a"]) == 3
    assert demanded(result) == {B: 3, C: 2}


def test_a_preferred_spread_does_not_count_under_ignore() -> None:
    web = shape(topologySpreadConstraints=spread(hard=False))

    result = assigned(pods(web, 8), [node("n-a", zone=A)], policy=PreferencePolicy.IGNORE)

    assert len(result.placed["n-a"]) == 4
    assert demanded(result) == {None: 4}


def test_a_preferred_spread_is_dropped_where_nothing_can_be_launched() -> None:
    web = shape(topologySpreadConstraints=spread(hard=False))

    assert demanded(assigned(pods(web, 2), zones=())) == {None: 2}


@pytest.mark.parametrize(
    ("spec", "cap"),
    [
        ({}, None),
        ({"topologySpreadConstraints": spread(HOSTNAME, hard=True, max_skew=3)}, 3),
        ({"topologySpreadConstraints": spread(HOSTNAME, hard=True, app="db")}, None),
        ({"topologySpreadConstraints": spread(HOSTNAME, hard=False)}, 1),
        ({"affinity": anti_affinity()}, 1),
        ({"affinity": anti_affinity("db")}, None),
        ({"containers": [{"name": "m", "ports": [{"hostPort": 80}]}]}, 1),
    ],
)
def test_a_new_node_takes_as_many_of_a_shape_as_its_rules_allow(
    spec: dict[str, Any], cap: int | None
) -> None:
    (demand,) = assigned(pods(shape(**spec), 5)).demands

    assert (demand.per_node if demand.per_node < 100 else None) == cap


def test_every_pod_is_placed_demanded_or_stuck() -> None:
    some = [
        *pods(shape("2", topologySpreadConstraints=hard()), 7, prefix="a"),
        *pods(shape("1", affinity=anti_affinity()), 5, prefix="b"),
        *pods(shape("500m"), 9, prefix="c"),
    ]

    result = assigned(some, [node("n-c", cpu="3", zone=C)], zones=(A, B))

    found = [key for keys in result.placed.values() for key in keys]
    found += [p.key for d in result.demands for p in d.pods] + [p.key for s, _ in result.stuck for p in s]
    assert sorted(found) == sorted(p.key for p in some)


def test_pods_in_whose_domains_nothing_can_be_bought_get_a_remedy() -> None:
    web = tuple(pods(shape(topologySpreadConstraints=spread(hard=True)), 1))
    unavailable = UnavailableDomains()
    refused = Demand(web[0].shape, web, pins=FrozenMap({ZONE: ZONES[0]}))
    unavailable.learn([refused], [refused], for_good=True)

    ((left, rule),) = assign(web, (), Zones(ZONES), unavailable=unavailable).stuck

    why = by_rule(rule)
    assert left == web
    assert why.text == "rules about other pods: no node can be bought in the domains that they allow"
    assert why.fix.startswith("allow nodes in more domains, or make the topology spread")
