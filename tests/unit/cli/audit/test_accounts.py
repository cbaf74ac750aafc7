"""The audit of a plan's accounting, and of the constraints of NodePools."""

from typing import Any

import pytest

from nodesmith.model.policies import MinValuesPolicy, NodeSettings
from nodesmith_cli.audit import Kind, Violation, audit
from tests.objects.audits import (
    NODEPOOL,
    ZONE,
    buys,
    catalog,
    daemonset,
    found,
    kinds,
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
TWO = [POOL, pod("p"), pod("q", "2")]
RIGHT = plan(buys("n", "3", ["p", "q"]))


def test_every_pending_pod_appears_in_the_plan_once() -> None:
    assert found(TWO, plan(buys("n", "1", ["p"]))) == [("pod-missing", "default/q")]
    assert found(TWO, plan(buys("n", "1", ["p"]), unplaced={"q": "too large"})) == []
    assert found(TWO, plan(buys("n", "3", ["p", "q"]), unplaced={"q": "why"})) == [("pod-twice", "default/q")]
    assert kinds(TWO, plan(buys("n", "3", ["p", "q"]), buys("m", "2", ["q"]))) == {Kind.POD_TWICE}
    assert found(TWO, plan(buys("n", "3", ["p", "q"]), unplaced={"r": "why"})) == [
        ("pod-unknown", "default/r")
    ]


def test_pods_that_need_no_node_do_not_appear_in_the_plan() -> None:
    bound = [POOL, node("there"), pod("p", node="there")]
    assert found(bound, plan()) == []
    assert found(bound, plan(buys("n", "1", ["p"]))) == [("pod-not-pending", "default/p")]
    daemon = [POOL, pod("p", owner="DaemonSet/agent")]
    assert found(daemon, plan()) == []
    assert found(daemon, plan(buys("n", "1", ["p"]))) == [("pod-not-pending", "default/p")]
    over = {**pod("p"), "status": {"phase": "Failed"}}
    assert found([POOL, over], plan()) == []
    assert ("pod-unknown", "default/p") in found([POOL, over], plan(buys("n", "1", ["p"])))


def test_a_gated_pod_may_be_omitted_and_is_never_placed() -> None:
    gated = [POOL, pod("p", schedulingGates=[{"name": "wait"}])]
    assert found(gated, plan()) == []
    assert found(gated, plan(unplaced={"p": "a gate holds it"})) == []
    assert found(gated, plan(buys("n", "1", ["p"]))) == [("pod-not-pending", "default/p")]


def test_a_nominated_pod_keeps_its_room_on_its_node() -> None:
    promised = {**pod("p", "3"), "status": {"nominatedNodeName": "n"}}
    assert found([POOL, node("n"), promised, pod("q", "1")], plan(existing={"n": ["q"]})) == []
    assert found([POOL, node("n"), promised, pod("q", "2")], plan(existing={"n": ["q"]})) == [
        ("resources", "n")
    ]


def test_an_unplaced_pod_has_a_reason() -> None:
    assert found([POOL, pod("p")], plan(unplaced={"p": " "})) == [("reason", "default/p")]
    nameless = plan(unplaced={"p": "why"})
    del nameless["unplaced"][0]["fix"]
    assert found([POOL, pod("p")], nameless) == [("format", "unplaced[0]")]


def test_an_unreadable_pod_stays_unplaced() -> None:
    broken = pod("p", "one")
    assert found([POOL, broken], plan(unplaced={"p": "its cpu is no quantity"})) == []
    assert Kind.UNREADABLE in kinds([POOL, broken], plan(buys("n", "1", ["p"])))


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "many"}}},
        {"kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": ["all"]}},
        {"kind": "Node", "metadata": None},
        {"kind": "NodeClaim", "metadata": {"name": "n"}, "spec": {"requirements": [{"operator": "In"}]}},
        {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {}},
        {
            "kind": "PersistentVolume",
            "metadata": {"name": "v"},
            "spec": {"nodeAffinity": {"required": "z-a"}},
        },
        {"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"accessModes": 1}},
        {
            "kind": "StorageClass",
            "metadata": {"name": "s"},
            "allowedTopologies": [{"matchLabelExpressions": [{}]}],
        },
        {"kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": [{"allocatable": {"count": 1}}]}},
        {"kind": "NodePool", "metadata": {"name": "other"}, "spec": {}},
        {"kind": "Namespace", "metadata": {}},
    ],
)
def test_an_unreadable_object_counts_as_missing(broken: dict[str, Any]) -> None:
    assert found([*TWO, broken], RIGHT) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"affinity": on_nodes([{"operator": "In"}])},
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"tolerations": ["all"]},
    ],
)
def test_an_invalid_rule_makes_its_pod_unreadable(spec: dict[str, Any]) -> None:
    assert found([POOL, pod("p", **spec)], plan(buys("n", "1", ["p"]))) == [
        ("requests", "n"),
        ("requests", "n"),
        ("requests", "n"),
        ("unreadable", "default/p"),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"priceHourly": "free"},
        {"pods": "default/p"},
        {"zone": None},
        {"instanceTypes": [1]},
        {"requests": {"cpu": "a lot"}},
    ],
)
def test_an_unreadable_node_is_reported_by_its_position(fields: dict[str, Any]) -> None:
    unreadable = {**RIGHT, "nodes": [{**RIGHT["nodes"][0], **fields}]}
    assert ("format", "nodes[0]") in found(TWO, unreadable)


@pytest.mark.parametrize(
    "field", ["nodes", "existing", "unplaced", "priceHourly", "lowerBoundHourly", "seconds", "steps"]
)
def test_a_plan_has_every_field(field: str) -> None:
    assert ("format", field) in found(TWO, {name: value for name, value in RIGHT.items() if name != field})


def test_prices_are_those_of_the_offerings_and_add_up() -> None:
    assert found(TWO, {**RIGHT, "priceHourly": 0.3}) == [("sum", "priceHourly")]
    assert found(TWO, {**RIGHT, "lowerBoundHourly": 0.21}) == [("bound", "lowerBoundHourly")]
    assert found(TWO, {**RIGHT, "lowerBoundHourly": 0.1}) == []
    assert found(TWO, plan({**buys("n", "3", ["p", "q"]), "priceHourly": 0.1})) == [("price", "n")]
    assert found(TWO, plan(buys("n", "3", ["p", "q"], capacityType="spot"))) == []


def test_requests_are_those_of_pods_and_daemonsets() -> None:
    agent = daemonset()
    assert found([*TWO, agent], plan(buys("n", "3500m", ["p", "q"], daemons=1))) == []
    assert kinds([*TWO, agent], plan(buys("n", "3", ["p", "q"]))) == {Kind.REQUESTS}


def test_a_node_is_an_offering_that_the_nodepool_may_launch() -> None:
    def bought(pool: Any = POOL, **fields: Any) -> list[tuple[str, str]]:
        return found([pool, pod("p")], plan(buys("n", "1", ["p"], **fields)))

    assert bought(types=["m.large", "m.huge"], zone="z-c") == [("offering", "n")]
    assert bought(zone="z-x") == [("offering", "n")]
    assert bought(capacityType="reserved") == [("offering", "n")]
    assert bought(nodePool="other") == [("nodepool", "n")]
    assert bought(pool=nodepool(replicas=0)) == [("nodepool", "n")]
    assert bought(pool=nodepool(replicas=2)) == []
    assert bought(pool=nodepool(requirements=[wants("karpenter.sh/capacity-type", "In", "spot")])) == [
        ("requirements", "n")
    ]
    assert bought(pool=nodepool(requirements=[wants("example.com/cpu", "Gte", "4")])) == []
    assert bought(pool=nodepool(requirements=[wants("example.com/cpu", "Gt", "4")])) == [
        ("requirements", "n")
    ]
    assert bought(pool=nodepool(requirements=[wants(ZONE, "NotIn", "z-a")])) == [("requirements", "n")]
    assert bought(types=["m.large", "x.large"]) == [("instance-type", "n")]
    assert bought(instanceTypes=["m.huge"]) == [("instance-type", "n")]


def test_an_ec2nodeclass_determines_the_zones_with_subnets() -> None:
    nodeclass = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {},
        "status": {"subnets": [{"id": "s", "zone": "z-b"}]},
    }
    manifests = [POOL, nodeclass, pod("p")]
    assert found(manifests, plan(buys("n", "1", ["p"], zone="z-b"))) == []
    assert found(manifests, plan(buys("n", "1", ["p"]))) == [("offering", "n")]
    nodeclass["metadata"] = {"name": "other"}
    assert found(manifests, plan(buys("n", "1", ["p"]))) == [("nodepool", "n")]


def test_node_names_are_unique_and_every_node_has_pods() -> None:
    twice = plan(buys("n", "1", ["p"]), buys("n", "2", ["q"]))
    assert ("node-twice", "n") in found(TWO, twice)
    assert ("node-twice", "n") in found([*TWO, node("n", cpu="0")], RIGHT)
    assert found([*TWO, node("o", cpu="0")], {**RIGHT, "existing": [{"node": "x", "pods": []}]}) == [
        ("node-unknown", "x")
    ]
    empty = plan(buys("n", "3", ["p", "q"]), buys("m", "0", []))
    assert found(TWO, empty) == [("node-empty", "m")]


@pytest.mark.parametrize(
    ("limits", "types", "is_right"),
    [
        ({"cpu": "4"}, ["m.large"], True),
        ({"cpu": "4"}, ["m.large", "m.huge"], False),
        ({"cpu": "3"}, ["m.large"], False),
        ({"memory": "15Gi"}, ["m.large"], False),
        ({"nodes": "1"}, ["m.large"], True),
        ({"nodes": 0}, ["m.large"], False),
        ({"nvidia.com/gpu": "0"}, ["m.large"], True),
        ({"nvidia.com/gpu": "0"}, ["g.large"], False),
    ],
)
def test_limits_hold_for_every_type_that_a_node_may_become(
    limits: dict[str, Any], types: list[str], is_right: bool
) -> None:
    manifests = [nodepool(limits=limits), pod("p")]
    assert found(manifests, plan(buys("n", "1", ["p"], types))) == (
        [] if is_right else [("limit", "default")]
    )


def test_existing_nodes_count_towards_the_limit_and_may_exceed_it_alone() -> None:
    there = node("old", labels={"karpenter.sh/nodepool": "default"}, cpu="4", unschedulable=True)
    assert found([nodepool(limits={"cpu": "8"}), there, pod("p")], plan(buys("n", "1", ["p"]))) == []
    assert found([nodepool(limits={"cpu": "7"}), there, pod("p")], plan(buys("n", "1", ["p"]))) == [
        ("limit", "default")
    ]
    assert found([nodepool(limits={"cpu": "1"}), there, pod("p")], plan(unplaced={"p": "the limit"})) == []


def test_min_values_require_a_choice_of_types() -> None:
    def bought(requirement: dict[str, Any], *types: str) -> list[tuple[str, str]]:
        pool = nodepool(requirements=[requirement])
        return found([pool, pod("p")], plan(buys("n", "1", ["p"], types)))

    types = {**wants("node.kubernetes.io/instance-type", "Exists"), "minValues": 2}
    assert bought(types, "m.large", "m.huge") == []
    assert bought(types, "m.large") == [("min-values", "n")]
    sizes = {**wants("example.com/size", "Exists"), "minValues": 2}
    assert bought(sizes, "m.large", "g.large") == [("min-values", "n")]
    capacity_types = {**wants("karpenter.sh/capacity-type", "In", "spot", "on-demand"), "minValues": 2}
    assert bought(capacity_types, "m.large") == []


def test_types_offered_only_in_other_zones_count_for_min_values() -> None:
    """m.huge is unavailable in z-c. g.large is only offered in z-a, and no pod needs its GPU."""
    choice = {
        **wants("node.kubernetes.io/instance-type", "In", "m.large", "m.huge", "g.large"),
        "minValues": 2,
    }
    pool = nodepool(requirements=[choice])

    def bought(zone: str, *manifests: Any) -> list[tuple[str, str]]:
        return found([pool, *manifests], plan(buys("n", "1", ["p"], zone=zone)))

    assert bought("z-c", pod("p")) == []
    assert bought("z-a", pod("p")) == [("min-values", "n")]
    assert bought("z-c", pod("p", nodeSelector={"topology.kubernetes.io/zone": "z-c"})) == [
        ("min-values", "n")
    ]


def test_with_best_effort_a_node_keeps_the_available_choice() -> None:
    choice = {**wants("node.kubernetes.io/instance-type", "Exists"), "minValues": 3}
    lenient = NodeSettings(min_values_policy=MinValuesPolicy.BEST_EFFORT)

    def bought(cpu: str, *types: str, **pool: Any) -> set[str]:
        manifests = [nodepool(requirements=[choice], **pool), pod("p", cpu)]
        of = plan(buys("n", cpu, ["p"], types))
        return {str(v.kind) for v in audit(manifests, catalog(), of, settings=lenient)}

    assert bought("1", "m.small", "m.large", "m.huge") == set()
    assert bought("1", "m.small", "m.large") == {"min-values"}
    assert bought("3", "m.large", "m.huge") == set(), "no other type has room for it"
    assert bought("3", "m.large") == {"min-values"}
    assert bought("3", "m.large", limits={"cpu": "4"}) == set(), "the limit excludes the other type"


def test_the_nodepool_with_the_higher_weight_comes_first() -> None:
    heavy = nodepool("heavy", weight=10)
    manifests = [POOL, pod("p")]
    bought = plan(buys("n", "1", ["p"]))
    assert found([*manifests, heavy], bought) == [("weight", "n")]
    assert found([*manifests, nodepool("heavy", weight=10, limits={"cpu": "1"})], bought) == []
    assert (
        found(
            [*manifests, nodepool("heavy", weight=10, taints=[{"key": "t", "effect": "NoSchedule"}])], bought
        )
        == []
    )
    few = [wants("example.com/cpu", "Lt", "2")]
    assert found([*manifests, nodepool("heavy", weight=10, requirements=few)], bought) == []
    bound_to_others = [POOL, heavy, pod("p", labels={"app": "web"}, affinity=near("web"))]
    assert found(bound_to_others, bought) == []
    counting = pod("q", topologySpreadConstraints=spread())
    counted = [POOL, heavy, pod("p", labels={"app": "web"}), counting]
    assert found(counted, plan(buys("n", "1", ["p"]), unplaced={"q": "no domain"})) == []


def test_a_nodepool_whose_daemonsets_use_the_pods_host_ports_is_not_preferred() -> None:
    heavy, bought = nodepool("heavy", weight=10), plan(buys("n", "1", ["p"]))
    agent = daemonset(ports=[{"hostPort": 8080}], nodeSelector={NODEPOOL: "heavy"})
    other = daemonset("other", cpu="100m", ports=[{"hostPort": 8080}], nodeSelector={NODEPOOL: "heavy"})

    def judged(*ports: int) -> list[tuple[str, str]]:
        return found([POOL, heavy, agent, other, pod("p", ports=ports)], bought)

    assert judged(8080) == []
    assert judged(80) == judged() == [("weight", "n")], (
        "that agents quarrel with each other is not the pods' concern"
    )


def test_only_types_with_free_host_ports_count_for_the_choice() -> None:
    choice = {**wants("node.kubernetes.io/instance-type", "Exists"), "minValues": 2}
    lenient = NodeSettings(min_values_policy=MinValuesPolicy.BEST_EFFORT)
    agent = daemonset(ports=[{"hostPort": 8080}], nodeSelector={"example.com/size": "huge"})

    def bought(*ports: int) -> set[str]:
        manifests = [nodepool(requirements=[choice]), agent, pod("p", "3", ports=ports)]
        of = plan(buys("n", "3", ["p"]))
        return {str(v.kind) for v in audit(manifests, catalog(), of, settings=lenient)}

    assert bought(8080) == set()
    assert bought(80) == {"min-values"}


def test_a_violation_says_what_where_and_why() -> None:
    reported = audit(TWO, catalog(), {**RIGHT, "priceHourly": 0.3})
    assert reported == [Violation(Kind.SUM, "priceHourly", "is 0.3, but the nodes cost 0.2")]
    assert str(reported[0]).startswith("sum: priceHourly: ")
    assert not reported[0].is_warning
