"""Plans hold in whatever order kube-scheduler binds: each spread holds even if its pod comes last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.kubernetes.pods import Shape
from tests.builders import (
    ZONES,
    anti_affinity,
    bind,
    expression,
    inputs,
    node,
    node_affinity,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
    spread,
)

ZONE, CAPACITY = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
RACK, HOSTNAME, ARCH = "example.com/rack", "kubernetes.io/hostname", "kubernetes.io/arch"
A, B, C = ZONES
NOTHING_FOR_SALE = nodepool_manifest(requirements=[expression(ZONE, "In", "no-zone")])


def plan(*shapes: tuple[Shape, int], pools: Sequence[Mapping[str, Any]] = (), **fields: Any) -> Plan:
    some = [pod for n, (of, count) in enumerate(shapes) for pod in pods(of, count, prefix=f"of-{n}")]
    running = fields.pop("running", [])
    nodepools = pools or [nodepool_manifest()]
    return decide(inputs(snapshot=snapshot(pods=[*some, *running], nodepools=nodepools, **fields)))


def bought(decided: Plan, *keys: str) -> Counter[tuple[str, ...]]:
    """Count the pods on new nodes by labels of the nodes; a label with several possible values counts as `any`."""
    found: Counter[tuple[str, ...]] = Counter()
    for planned in decided.nodes:
        open_ = {
            ZONE: {o.zone for o in planned.request.overrides},
            CAPACITY: {planned.request.capacity_type},
        }
        place = (open_[key].pop() if len(open_[key]) == 1 else "any" for key in keys)
        found[tuple(place)] += len(planned.claim.nominated)
    return found


def placed(decided: Plan) -> dict[str, int]:
    return {name: len(keys) for name, keys in (decided.placed or {}).items()}


def test_pods_that_only_a_spread_of_others_counts_are_placed_first() -> None:
    nodes = [node("n-a", zone=A), node("n-b", zone=B)]
    bound = shape("1", topologySpreadConstraints=spread(hard=True))
    preference = spread(CAPACITY, hard=False)
    free = shape("100m", nodeSelector={ZONE: A}, topologySpreadConstraints=preference)

    decided = plan((bound, 2), (free, 2), nodes=nodes, pools=[NOTHING_FOR_SALE])

    assert placed(decided) == {"n-a": 2, "n-b": 2}


def test_a_preferred_spread_does_not_change_what_a_hard_one_counts() -> None:
    """As a rule, the preference would exclude nodes without its key, such as the one with the pod in zone a."""
    nodes = [
        node("n-a", zone=A, cpu="1"),
        node("n-a2", zone=A, labels={RACK: "1"}),
        node("n-b", zone=B, labels={RACK: "2"}),
    ]
    wishful = shape("1", topologySpreadConstraints=[*spread(hard=True), *spread(RACK, hard=False)])

    decided = plan((wishful, 3), nodes=nodes, running=bind(shape("1"), "n-a"), pools=[NOTHING_FOR_SALE])

    assert placed(decided) == {"n-a2": 1, "n-b": 2}


def test_counted_pods_go_to_nodes_that_certainly_count() -> None:
    """A spread counts only nodes that its pods may use; it must be certain which other pods are on such nodes."""
    picky = shape("1", topologySpreadConstraints=spread(hard=True), nodeSelector={CAPACITY: "on-demand"})

    decided = plan((picky, 3), (shape("2"), 6))

    assert not decided.unplaced
    counts = bought(decided, ZONE, CAPACITY)
    assert ("any", "on-demand") not in counts
    mine = {
        o.zone
        for n in decided.nodes
        if "default/of-0-" in str(n.claim.nominated)
        for o in n.request.overrides
    }
    counted = [counts[zone, "on-demand"] for zone in ZONES]
    assert max(counts[zone, "on-demand"] for zone in mine) - min(counted) <= 1


def test_followers_share_the_nodes_of_counted_pods() -> None:
    picky = shape("1", topologySpreadConstraints=spread(hard=True), nodeSelector={CAPACITY: "on-demand"})
    beside = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    follower = shape(
        app="sidekick", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    )

    decided = plan((picky, 1), (shape("2"), 1), (follower, 2))

    assert not decided.unplaced
    alone = [n.claim.nominated for n in decided.nodes if all("of-2" in key for key in n.claim.nominated)]
    assert not alone


def test_pods_that_only_fit_nodes_that_do_not_count_go_there() -> None:
    picky = shape("1", topologySpreadConstraints=spread(hard=True), nodeSelector={CAPACITY: "on-demand"})

    decided = plan((picky, 3), (shape("2", nodeSelector={CAPACITY: "spot", ZONE: A}), 4))

    assert not decided.unplaced
    assert bought(decided, ZONE, CAPACITY) == {
        (A, "spot"): 4,
        (A, "on-demand"): 1,
        (B, "on-demand"): 1,
        (C, "on-demand"): 1,
    }


def test_a_node_counts_for_a_spread_only_if_it_has_the_keys_of_all_spreads_of_the_pod() -> None:
    racks: tuple[dict[str, str], ...] = ({RACK: "1"}, {RACK: "2"}, {})
    nodes = [node(f"n-{zone}", zone=zone, labels=labels) for zone, labels in zip(ZONES, racks, strict=True)]
    both = [*spread(hard=True), *spread(RACK, hard=True)]

    decided = plan((shape(topologySpreadConstraints=both), 4), nodes=nodes)

    assert placed(decided) == {f"n-{A}": 2, f"n-{B}": 2}


def test_zones_in_which_nothing_could_be_bought_do_not_count() -> None:
    there = node("n-c", zone=C, cpu="1")
    pool = nodepool_manifest(limits={"nodes": "1"})

    decided = plan((shape("1", topologySpreadConstraints=spread(hard=True)), 4), nodes=[there], pools=[pool])

    assert not decided.unplaced
    assert placed(decided) == {"n-c": 1}
    assert bought(decided, ZONE) == {(C,): 3}


def test_pods_left_without_a_node_by_limits_do_not_count() -> None:
    """The limit allows one node for two pods: with one pod in each zone, no zone may take more than one other pod."""
    pool = nodepool_manifest(limits={"nodes": "1"})
    nodes = [node(f"n-{zone}", zone=zone, cpu="2") for zone in ZONES]
    wide = shape("1500m", topologySpreadConstraints=spread(hard=True))

    decided = plan((wide, 9), nodes=nodes, pools=[pool])

    assert placed(decided) == {f"n-{zone}": 1 for zone in ZONES}
    assert bought(decided, ZONE).total() == 1


def test_pods_that_prefer_a_spread_settle_their_zone_for_later_pods() -> None:
    """The preference gives the pods an earlier turn, before the pods that repel them over zones."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
    shy = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wishful = shape("3", topologySpreadConstraints=spread(RACK, hard=False))

    decided = plan((wishful, 4), (shape("1", app="shy", affinity=shy), 1))

    assert not decided.unplaced
    (shy_zone,) = {
        o.zone for n in decided.nodes if "default/of-1-0000" in n.claim.nominated for o in n.request.overrides
    }
    web_zones = {
        o.zone for n in decided.nodes if "of-0" in str(n.claim.nominated) for o in n.request.overrides
    }
    assert shy_zone not in web_zones


def test_pods_that_only_a_spread_over_nodes_of_others_counts_are_placed_first_too() -> None:
    alone = shape("1", topologySpreadConstraints=spread(HOSTNAME, hard=True))

    decided = plan((alone, 1), (shape("100m"), 3), nodes=[node("n-a")], pools=[NOTHING_FOR_SALE])

    assert placed(decided) == {"n-a": 3}
    assert [u.pods for u in decided.unplaced] == [("default/of-0-0000",)]


def test_pods_for_which_nothing_can_be_bought_get_existing_capacity_first() -> None:
    """There are too many pods to try another order."""
    here, large, small = (
        node("here", cpu="2", labels={RACK: "1"}),
        shape("1"),
        shape("500m", nodeSelector={RACK: "1"}),
    )

    decided = plan((large, 300), (small, 4), nodes=[here])

    assert placed(decided) == {"here": 4}
    assert not decided.unplaced


def test_pods_for_which_nothing_can_be_bought_do_not_break_the_spread_of_others() -> None:
    here = node("here", cpu="2", labels={RACK: "1", CAPACITY: "spot"})
    even = shape("100m", topologySpreadConstraints=spread(CAPACITY, hard=True))
    large, small = shape("1"), shape("500m", nodeSelector={RACK: "1"})

    decided = plan((large, 300), (small, 3), (even, 4), nodes=[here])

    assert not decided.unplaced
    assert placed(decided)["here"] >= 3


def test_of_many_pods_those_that_differ_only_in_whom_they_avoid_each_avoid_their_own() -> None:
    """Where there are so many, few pods are placed together with those that may go to the same zones."""
    nodes = [node(f"n-{zone}", zone=zone, cpu="0") for zone in ZONES]
    running = [
        pod
        for app, zone in (("red", A), ("blue", B), ("blue", C))
        for pod in bind(shape(app=app), f"n-{zone}")
    ]
    shy = [shape("100m", affinity=anti_affinity(app, ZONE)) for app in ("red", "blue")]

    decided = plan((shy[0], 3), (shy[1], 3), (shape(app="other"), 300), nodes=nodes, running=running)

    assert not decided.unplaced
    for planned in decided.nodes:
        there = {o.zone for o in planned.request.overrides}
        held = {key.rpartition("-")[0] for key in planned.claim.nominated}
        assert not (A in there and "default/of-0" in held)
        assert not (there & {B, C} and "default/of-1" in held)


def test_pods_that_no_node_takes_do_not_affect_where_others_go() -> None:
    huge = shape("9999", affinity=anti_affinity(key=ZONE))
    on_demand = expression(CAPACITY, "In", "on-demand")
    pools = [
        nodepool_manifest("heavy", requirements=[on_demand, expression(ZONE, "In", C)], weight=10),
        nodepool_manifest("light", requirements=[on_demand]),
    ]

    choosy = shape("1", affinity=node_affinity([expression(ZONE, "In", A, C)]))

    decided = plan((huge, 1), (choosy, 1), pools=pools)

    assert [n.claim.nodepool for n in decided.nodes] == ["heavy"]


def test_pods_that_must_share_a_node_join_the_pods_that_may_bind_before_them() -> None:
    """Otherwise they would be left whenever the other pods, which may also be first, bind first."""

    def near(key: str) -> dict[str, Any]:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    pool = nodepool_manifest(requirements=[expression(ARCH, "In", "amd64", "arm64")])
    other = shape("2", affinity=near(ZONE), nodeSelector={ARCH: "arm64"})

    joining = plan((shape("1", affinity=near(HOSTNAME)), 1), (other, 1), pools=[pool])
    barred = plan(
        (shape("1", affinity=near(HOSTNAME), nodeSelector={ARCH: "amd64"}), 1), (other, 1), pools=[pool]
    )

    assert len(joining.nodes) == 1
    assert not joining.unplaced
    assert [u.pods for u in barred.unplaced] == [("default/of-0-0000",)]


def test_pods_that_must_follow_come_after_those_that_only_prefer_to() -> None:
    """The latter may bind first and then keep the others away; no plan may rely on the opposite order."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
    preferred = [{"weight": 1, "podAffinityTerm": {**term, "topologyKey": CAPACITY}}]
    shy = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
    }
    follower = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    decided = plan((shape("1", affinity=shy), 1), (shape("2", affinity=follower), 1))

    assert [u.pods for u in decided.unplaced] == [("default/of-1-0000",)]


def test_pods_take_free_capacity_even_if_that_exceeds_the_skew_of_others() -> None:
    """kube-scheduler applies only a pod's own spreads: it binds a pod without constraints wherever the pod fits."""
    nodes = [node("n-a", zone=A), node("n-b", zone=B, cpu="100m")]
    spreading = shape("500m", app="other", topologySpreadConstraints=spread(hard=True))

    decided = plan((spreading, 3), (shape("250m"), 2), nodes=nodes, pools=[NOTHING_FOR_SALE])

    assert not decided.unplaced
    assert placed(decided) == {"n-a": 5}


def test_pods_go_where_spreads_of_others_allow_them_if_possible() -> None:
    """The pod bound last then has a place, so the others leave the only node where it can run."""
    nodes = [node("n-a", zone=A), node("n-b", zone=B, cpu="1")]
    spreading = shape("500m", app="other", topologySpreadConstraints=spread(hard=True))

    decided = plan(
        (spreading, 3),
        (shape("250m"), 2),
        (shape("900m", app="third"), 1),
        nodes=nodes,
        pools=[NOTHING_FOR_SALE],
    )

    assert not decided.unplaced
    counted = Counter(name for name, keys in (decided.placed or {}).items() for key in keys if "of-1" in key)
    assert counted["n-a"] <= counted["n-b"] + 1
