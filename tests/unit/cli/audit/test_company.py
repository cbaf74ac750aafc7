"""The audit of topology spread, affinity and anti-affinity."""

from typing import Any

import pytest

from nodesmith.model.policies import DefaultSpread, NodeSettings
from nodesmith_cli.audit import audit
from tests.objects.audits import (
    HOST,
    ZONE,
    ZONES,
    apart,
    buys,
    catalog,
    found,
    near,
    node,
    nodepool,
    on_nodes,
    plan,
    pod,
    spread,
    wants,
)

POOL = nodepool()
WEB = {"app": "web"}


def spread_over(counts: dict[str, int], *more: Any, skew: int = 1, **constraint: Any) -> list[str]:
    """Audit pods that spread over zones, given their number in each zone, and return the kinds of violations."""
    pods, nodes = [], []
    for zone, count in counts.items():
        names = [f"{zone}-{i}" for i in range(count)]
        pods += [
            pod(n, "100m", labels=WEB, topologySpreadConstraints=spread(skew=skew, **constraint))
            for n in names
        ]
        if names:
            nodes.append(buys(f"n-{zone}", f"{100 * count}m", names, zone=zone))
    return [kind for kind, _ in found([POOL, *pods, *more], plan(*nodes))]


def test_a_spread_limits_the_skew_between_zones() -> None:
    assert spread_over({"z-a": 2, "z-b": 2, "z-c": 1}) == []
    assert spread_over({"z-a": 3, "z-b": 2, "z-c": 1}) == ["spread"]
    assert spread_over({"z-a": 3, "z-b": 2, "z-c": 1}, skew=2) == []


def test_zones_without_a_node_do_not_count_for_a_spread() -> None:
    assert spread_over({"z-a": 5}) == []
    assert spread_over({"z-a": 5, "z-b": 5}) == []
    assert spread_over({"z-a": 2, "z-b": 2}, node("empty", zone="z-c", cpu="0")) == ["spread", "spread"]


def test_min_domains_count_zones_that_do_not_exist() -> None:
    assert spread_over({"z-a": 1, "z-b": 1}, minDomains=3) == []
    assert spread_over({"z-a": 2, "z-b": 1}, minDomains=3) == ["spread"]
    assert spread_over({"z-a": 2, "z-b": 1}, minDomains=2) == []


def test_existing_pods_count_for_a_spread_and_terminating_ones_do_not() -> None:
    old = pod("old", labels=WEB, node="there")
    there = node("there", zone="z-a", cpu="1")
    assert spread_over({"z-a": 1, "z-b": 1}, there, old) == []
    assert spread_over({"z-a": 2, "z-b": 1}, there, old) == ["spread"]
    leaving = {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}}
    assert spread_over({"z-a": 2, "z-b": 1}, there, leaving) == []


def test_default_spreads_apply_to_controlled_pods_without_their_own() -> None:
    hard = NodeSettings(default_spreads=(DefaultSpread(ZONE, 1, hard=True),))
    here = [pod(f"a{i}", "100m", owner="ReplicaSet/web") for i in range(2)]
    there = pod("b", "100m", owner="ReplicaSet/web")
    others = pod("c", "100m", owner="ReplicaSet/other"), pod("d", "100m")

    def kinds_of(*on_a: dict[str, Any], settings: NodeSettings = hard) -> set[str]:
        manifests = [POOL, *on_a, there, node("full", zone="z-c", cpu="0")]
        names = [each["metadata"]["name"] for each in on_a]
        a, b = buys("n-a", f"{100 * len(names)}m", names), buys("n-b", "100m", ["b"], zone="z-b")
        return {str(v.kind) for v in audit(manifests, catalog(), plan(a, b), settings=settings)}

    assert kinds_of(*here) == {"spread"}
    assert kinds_of(*here, settings=NodeSettings()) == set()
    assert kinds_of(here[0], *others) == set()


def test_other_namespaces_and_other_labels_do_not_count_for_a_spread() -> None:
    there = node("there", zone="z-a")
    for other in (
        pod("o", labels=WEB, namespace="else", node="there"),
        pod("o", labels={"app": "db"}, node="there"),
    ):
        assert spread_over({"z-a": 2, "z-b": 1}, there, other) == []


def test_match_label_keys_keep_revisions_apart() -> None:
    old = pod("old", labels={**WEB, "revision": "1"}, node="there")
    new = [
        pod(
            f"p{i}",
            labels={**WEB, "revision": "2"},
            topologySpreadConstraints=spread(matchLabelKeys=["revision", "absent"]),
        )
        for i in range(3)
    ]
    bought = plan(buys("n", "2", ["p0", "p1"]), buys("m", "1", ["p2"], zone="z-b"))
    manifests = [POOL, node("there"), old, *new]
    assert found(manifests, bought) == []
    old["metadata"]["labels"]["revision"] = "2"
    assert [kind for kind, _ in found(manifests, bought)] == ["spread"]


@pytest.mark.parametrize(("policy", "is_right"), [("Honor", True), ("Ignore", False)])
def test_node_affinity_decides_which_zones_count_unless_told_otherwise(policy: str, is_right: bool) -> None:
    only = on_nodes([wants(ZONE, "In", "z-a", "z-b")])
    constraint = spread(nodeAffinityPolicy=policy)
    pods = [pod(f"p{i}", labels=WEB, affinity=only, topologySpreadConstraints=constraint) for i in range(4)]
    bought = plan(buys("n", "2", ["p0", "p1"]), buys("m", "2", ["p2", "p3"], zone="z-b"))
    right = found([POOL, node("empty", zone="z-c"), *pods], bought) == []
    assert right is is_right


@pytest.mark.parametrize(("policy", "is_right"), [("Honor", True), ("Ignore", False)])
def test_taints_decide_which_zones_count_with_the_honor_policy(policy: str, is_right: bool) -> None:
    tainted = node("empty", zone="z-c", taints=[{"key": "team", "effect": "NoSchedule"}])
    right = spread_over({"z-a": 2, "z-b": 2}, tainted, nodeTaintsPolicy=policy) == []
    assert right is is_right


def test_a_spread_over_hostnames_counts_every_node() -> None:
    pods = [pod(f"p{i}", labels=WEB, topologySpreadConstraints=spread(HOST)) for i in range(2)]
    assert found([POOL, *pods], plan(buys("n", "1", ["p0"]), buys("m", "1", ["p1"]))) == []
    assert found([POOL, *pods], plan(buys("n", "2", ["p0", "p1"]))) == []
    both = [
        kind for kind, _ in found([POOL, *pods, node("empty", cpu="0")], plan(buys("n", "2", ["p0", "p1"])))
    ]
    assert both == ["spread"]


def test_a_spread_over_any_label_of_a_node_is_counted() -> None:
    pods = [pod(f"p{i}", labels=WEB, topologySpreadConstraints=spread("rack")) for i in range(3)]
    racks = [node(f"n-{rack}", labels={"rack": rack}) for rack in ("1", "2")]
    assert found([POOL, *pods, *racks], plan(existing={"n-1": ["p0", "p1"], "n-2": ["p2"]})) == []
    wrong = found([POOL, *pods, *racks], plan(existing={"n-1": ["p0", "p1", "p2"]}))
    assert [kind for kind, _ in wrong] == ["spread"]
    bare = found(
        [POOL, *pods, *racks, node("bare")], plan(existing={"bare": ["p0"], "n-1": ["p1"], "n-2": ["p2"]})
    )
    assert bare == [("spread", "default/p0")]


def test_a_new_node_must_have_a_definite_value_for_the_label_of_a_spread() -> None:
    pool = nodepool(requirements=[wants("rack", "In", "1", "2")])
    pods = [pod(f"p{i}", labels=WEB, topologySpreadConstraints=spread("rack")) for i in range(2)]
    manifests = [pool, *pods]
    assert [kind for kind, _ in found(manifests, plan(buys("n", "2", ["p0", "p1"])))] == [
        "unsettled",
        "unsettled",
    ]
    reported = [buys("n", "1", ["p0"], labels={"rack": "1"}), buys("m", "1", ["p1"], labels={"rack": "2"})]
    assert found(manifests, plan(*reported)) == []
    mistold = buys("n", "2", ["p0", "p1"], labels={"rack": "3"})
    assert ("requirements", "n") in found(manifests, plan(mistold))


def test_a_domain_that_depends_on_the_type_is_undetermined() -> None:
    constraint = spread("example.com/size")
    manifests = [POOL, pod("p", labels=WEB, topologySpreadConstraints=constraint)]
    assert found(manifests, plan(buys("n", "1", ["p"]))) == []
    either = plan(buys("n", "1", ["p"], ["m.large", "m.huge"]))
    assert found(manifests, either) == [("unsettled", "default/p")]


def test_soft_spreads_and_preferences_are_never_violated() -> None:
    soft = [{**spread()[0], "whenUnsatisfiable": "ScheduleAnyway"}]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {}}]}
    affinity = {"podAffinity": preferred, "podAntiAffinity": preferred}
    pods = [pod(f"p{i}", labels=WEB, topologySpreadConstraints=soft, affinity=affinity) for i in range(3)]
    bought = plan(buys("n", "3", ["p0", "p1", "p2"]))
    assert found([POOL, node("empty", zone="z-b", cpu="0"), *pods], bought) == []


def test_counted_pods_without_a_spread_may_be_bound_last() -> None:
    caring = [pod(f"c{zone}", labels=WEB, topologySpreadConstraints=spread()) for zone in ZONES]
    careless = [pod(f"p{i}", labels=WEB) for i in range(3)]
    others = [buys(f"n-{zone}", "1", [f"c{zone}"], zone=zone) for zone in ZONES[1:]]
    names = ["cz-a", *(f"p{i}" for i in range(3))]
    bought = plan(buys("n", "4", names), *others)
    assert found([POOL, *caring, *careless], bought) == []


def test_two_groups_that_count_each_other_are_bound_in_turn() -> None:
    one = [
        pod(f"a{i}", "100m", labels={"app": "a"}, topologySpreadConstraints=spread(app="b")) for i in range(8)
    ]
    other = [
        pod(f"b{i}", "100m", labels={"app": "b"}, topologySpreadConstraints=spread(app="a")) for i in range(8)
    ]
    left, right = [f"a{i}" for i in range(8)], [f"b{i}" for i in range(8)]
    bought = plan(
        buys("n", "800m", left[:4] + right[:4]),
        buys("m", "800m", left[4:] + right[4:], zone="z-b"),
    )
    assert found([POOL, *one, *other], bought) == []
    crowded = plan(buys("n", "800m", left), buys("m", "800m", right))
    empty = node("empty", zone="z-b", cpu="0")
    assert {kind for kind, _ in found([POOL, *one, *other, empty], crowded)} == {"spread"}


def test_two_spreads_of_one_pod_hold_together() -> None:
    both = [*spread(), *spread(HOST)]
    pods = [pod(f"p{i}", labels=WEB, topologySpreadConstraints=both) for i in range(4)]
    even = plan(
        buys("n0", "1", ["p0"]), buys("n1", "1", ["p1"]), buys("n2", "1", ["p2"], zone="z-b"),
        buys("n3", "1", ["p3"], zone="z-b"),
    )  # fmt: skip
    assert found([POOL, *pods], even) == []
    crowded = plan(buys("n0", "3", ["p0", "p1", "p2"]), buys("n3", "1", ["p3"], zone="z-b"))
    assert [kind for kind, _ in found([POOL, *pods], crowded)] == ["spread", "spread"]


def test_anti_affinity_applies_in_both_directions() -> None:
    shy, web = pod("shy", affinity=apart("web")), pod("web", labels=WEB)
    together, asunder = (
        plan(buys("n", "2", ["shy", "web"])),
        plan(buys("n", "1", ["shy"]), buys("m", "1", ["web"])),
    )
    assert found([POOL, shy, web], together) == [
        ("anti-affinity", "default/shy"),
        ("anti-affinity", "default/web"),
    ]
    assert found([POOL, shy, web], asunder) == []
    over_zones = pod("shy", affinity=apart("web", ZONE))
    assert [kind for kind, _ in found([POOL, over_zones, web], asunder)] == ["anti-affinity"] * 2


def test_the_anti_affinity_of_a_bound_pod_is_reported_for_the_new_pod() -> None:
    there, shy = node("there"), pod("shy", affinity=apart("web"), node="there")
    assert found([POOL, there, shy, pod("p", labels=WEB)], plan(existing={"there": ["p"]})) == [
        ("anti-affinity", "default/p")
    ]
    quarrel = [shy, pod("old", labels=WEB, node="there")]
    assert found([POOL, there, *quarrel, pod("p")], plan(existing={"there": ["p"]})) == []


def test_pods_with_anti_affinity_to_each_other_run_on_separate_nodes() -> None:
    pods = [pod(f"p{i}", labels=WEB, affinity=apart("web")) for i in range(2)]
    assert found([POOL, *pods], plan(buys("n", "1", ["p0"]), buys("m", "1", ["p1"]))) == []
    assert {kind for kind, _ in found([POOL, *pods], plan(buys("n", "2", ["p0", "p1"])))} == {"anti-affinity"}


@pytest.mark.parametrize(
    ("term", "meets"),
    [
        ({}, False),
        ({"namespaces": ["else"]}, True),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "else"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}, "namespaces": ["else"]}, True),
        ({"namespaceSelector": {}, "matchLabelKeys": ["track"]}, False),
        ({"namespaceSelector": {}, "mismatchLabelKeys": ["track"]}, True),
        ({"namespaceSelector": {}, "mismatchLabelKeys": ["app"]}, True),
        ({"namespaceSelector": {}, "labelSelector": None}, False),
    ],
)
def test_terms_select_by_namespace_and_labels(term: dict[str, Any], meets: bool) -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "else", "labels": {"team": "a"}}}
    shy = pod("shy", labels={"track": "canary"}, affinity=apart("web", **term))
    other = pod("web", labels={**WEB, "track": "stable"}, namespace="else")
    wrong = found([POOL, namespace, shy, other], plan(buys("n", "2", ["shy", "else/web"])))
    assert [kind for kind, _ in wrong] == ["anti-affinity"] * (2 if meets else 0)


def test_affinity_requires_a_matching_pod_in_its_domain() -> None:
    fond, web = pod("fond", affinity=near("web")), pod("web", labels=WEB)
    assert found([POOL, fond, web], plan(buys("n", "1", ["fond"]), buys("m", "1", ["web"]))) == []
    far = plan(buys("n", "1", ["fond"]), buys("m", "1", ["web"], zone="z-b"))
    assert found([POOL, fond, web], far) == [("affinity", "default/fond")]
    assert found([POOL, fond], plan(buys("n", "1", ["fond"]))) == [("affinity", "default/fond")]


def test_the_first_pod_with_affinity_to_itself_may_go_anywhere_and_the_others_must_follow() -> None:
    pods = [pod(f"p{i}", labels=WEB, affinity=near("web")) for i in range(3)]
    together = plan(buys("n", "2", ["p0", "p1"]), buys("m", "1", ["p2"]))
    assert found([POOL, *pods], together) == []
    asunder = plan(buys("n", "2", ["p0", "p1"]), buys("m", "1", ["p2"], zone="z-b"))
    assert "affinity" in [kind for kind, _ in found([POOL, *pods], asunder)]
    there = [node("there", zone="z-c"), pod("old", labels=WEB, node="there")]
    assert "affinity" in [kind for kind, _ in found([POOL, *pods, *there], together)]


def test_a_pod_that_must_be_first_is_bound_before_others_elsewhere() -> None:
    first = pod("first", labels=WEB, affinity=near("web"))
    follower, plain = pod("follower", labels=WEB, affinity=near("web")), pod("plain", labels=WEB)
    bought = plan(buys("n", "1", ["first"]), buys("m", "2", ["follower", "plain"], zone="z-b"))
    assert found([POOL, first, follower, plain], bought) == []


@pytest.mark.parametrize("zones", [ZONES[:1], ZONES[:2]])
def test_affinity_on_many_nodes_works_with_zone_spreads_of_the_same_pods(
    zones: list[str],
) -> None:
    several, fond = range(110), {"app": "fond"}
    web = [pod(f"web{n}", "100m", labels=WEB) for n in several]
    near_web = [pod(f"fond{n}", "100m", labels=fond, affinity=near("web", HOST)) for n in several]
    even = [pod(f"even{n}", labels=fond, topologySpreadConstraints=spread(app="fond")) for n in range(2)]
    pairs = [
        buys(f"n{n}", "200m", [f"web{n}", f"fond{n}"], ["m.small"], zones[n % len(zones)]) for n in several
    ]
    others = [buys(f"m{n}", "1", [f"even{n}"], zone=zones[n % len(zones)]) for n in range(2)]
    manifests = [POOL, *web, *near_web, *even]

    assert found(manifests, plan(*pairs, *others)) == []
    pairs[0] = buys("n0", "100m", ["fond0"], ["m.small"])
    assert ("affinity", "default/fond0") in found(manifests, plan(*pairs, *others))


def test_one_pod_must_match_all_terms_of_an_affinity() -> None:
    web, db = near("web")["podAffinity"], near("db")["podAffinity"]
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    fond = pod("fond", affinity={"podAffinity": {name: web[name] + db[name]}})
    apart_ones = [pod("web", labels=WEB), pod("db", labels={"app": "db"})]
    bought = plan(buys("n", "3", ["fond", "web", "db"]))
    assert found([POOL, fond, *apart_ones], bought) == [("affinity", "default/fond")]


def test_a_chain_of_affinities_is_bound_from_its_end() -> None:
    chain = [pod(f"p{i}", labels={"app": f"a{i}"}, affinity=near(f"a{i + 1}")) for i in range(3)]
    anchor = pod("p3", labels={"app": "a3"})
    names = ["p0", "p1", "p2", "p3"]
    assert found([POOL, *chain, anchor], plan(buys("n", "4", names))) == []
    circle = [*chain, pod("p3", labels={"app": "a3"}, affinity=near("a0"))]
    assert {kind for kind, _ in found([POOL, *circle], plan(buys("n", "4", names)))} == {"affinity"}


def test_a_node_without_the_label_fails_affinity_and_passes_anti_affinity() -> None:
    pods = [
        pod("p", labels=WEB, affinity=near("web", "rack")),
        pod("q", labels={"app": "db"}, affinity=apart("db", "rack")),
    ]
    assert found([POOL, node("bare"), *pods], plan(existing={"bare": ["p", "q"]})) == [
        ("affinity", "default/p")
    ]
