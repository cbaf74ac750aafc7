"""Faults planted in good plans: the audit finds every one, and finds nothing in the good plans.

The first plan is written by hand and contains some of everything. The others are the solver's, for random problems.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nodesmith_cli.audit import Kind, audit
from tests.objects.audits import (
    DRIVER,
    ZONE,
    apart,
    buys,
    daemonset,
    kinds,
    near,
    node,
    nodeclass,
    nodepool,
    on_nodes,
    plan,
    pod,
    spread,
    wants,
)
from tests.problems.drawing import LARGE, Problem, draw
from tests.problems.planning import planned
from tests.samples import sampled

Plan = dict[str, Any]
Cluster = dict[str, dict[str, Any]]
Mutation = Callable[[Cluster, Plan], object]
TYPE, CAPACITY_TYPE = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"
RESERVATION = "karpenter.k8s.aws/capacity-reservation"
SEEDS = (0, 1, 2, 3, 5, 6, 7, 8, 9)
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def small(name: str, **fields: Any) -> dict[str, Any]:
    return pod(name, "250m", **fields)


def cluster() -> Cluster:
    """Return a cluster with some of everything, by `kind/name`."""
    choice = {**wants(TYPE, "Exists"), "minValues": 2}
    both = wants(CAPACITY_TYPE, "In", "spot", "on-demand")
    web = {"labels": {"app": "web"}, "topologySpreadConstraints": spread()}
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in ("c0", "c1")]
    objects = [
        nodepool(requirements=[choice, both], limits={"cpu": "40", "nodes": "4"}),
        nodepool(
            "team", taints=[TAINT], limits={"cpu": "4"}, requirements=[wants("example.com/cpu", "Gt", "2")]
        ),
        daemonset(ports=[{"hostPort": 9100}]),
        node("old", zone="z-b", cpu="2", labels={"disk": "ssd"}),
        small("there", node="old", labels={"app": "lonely"}, affinity=apart("loud")),
        *(small(f"web-{i}", **web) for i in range(3)),
        *(small(f"shy-{i}", labels={"app": "shy"}, affinity=apart("shy")) for i in range(2)),
        *(small(f"port-{i}", ports=[80]) for i in range(2)),
        small("fond", affinity=near("web")),
        small("loud", labels={"app": "loud"}),
        small("mounts", volumes=volumes),
        small("mounts-too", volumes=[{"name": "c2", "persistentVolumeClaim": {"claimName": "c2"}}]),
        small("choosy", nodeSelector={"disk": "ssd"}),
        small("plain", affinity=on_nodes([wants("disk", "DoesNotExist")], [wants(ZONE, "In", "z-x")])),
        small(
            "teamster",
            tolerations=[{"key": "team", "value": "a"}],
            nodeSelector={"karpenter.sh/nodepool": "team"},
        ),
        pod("giant", "200"),
    ]
    for i in range(3):
        objects += claimed(f"c{i}", "z-a")
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}


def claimed(name: str, zone: str) -> list[dict[str, Any]]:
    """Return a bound claim and its volume."""
    about = {"name": name, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    required = {"nodeSelectorTerms": [{"matchExpressions": [wants(ZONE, "In", zone)]}]}
    spec = {"nodeAffinity": {"required": required}, "csi": {"driver": DRIVER, "volumeHandle": name}}
    return [
        {"kind": "PersistentVolumeClaim", "metadata": about, "spec": {"volumeName": name}},
        {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
    ]


def right() -> Plan:
    """Return a plan for the cluster that is correct in every respect: n-a, n-b, n-c, team-1 in this order."""
    both = ["m.large", "m.huge"]
    return plan(
        buys("n-a", "1500m", ["web-0", "fond", "mounts", "port-0"], both, daemons=1),
        buys("n-b", "1750m", ["web-1", "shy-0", "port-1", "loud", "plain"], both, "z-b", daemons=1),
        buys("n-c", "1250m", ["web-2", "shy-1", "mounts-too"], ["m.large", "m.small"], "z-a", daemons=1),
        buys("team-1", "250m", ["teamster"], nodePool="team"),
        existing={"old": ["choosy"]},
        unplaced={"giant": "larger than any type"},
    )


def moved(of: Plan, name: str, to: int) -> None:
    """Move a pod to another new node, and update all sums."""
    for number, each in enumerate(of["nodes"]):
        step = (number == to) - (f"default/{name}" in each["pods"])
        each["pods"] = [key for key in each["pods"] if key != f"default/{name}"]
        each["pods"] += [f"default/{name}"] * (number == to)
        asked = each["requests"]
        asked["cpu"] = f"{int(asked['cpu'].removesuffix('m')) + 250 * step}m"
        asked["memory"] = f"{int(asked['memory'].removesuffix('Gi')) + step}Gi"
        asked["pods"] = str(int(asked["pods"]) + step)
    for each in of["existing"]:
        each["pods"] = [key for key in each["pods"] if key != f"default/{name}"]


def moved_to_old(of: Plan, name: str) -> None:
    """Move a pod to the existing node."""
    moved(of, name, -1)
    of["existing"][0]["pods"].append(f"default/{name}")


def asking(manifests: Cluster, of: Plan, name: str, number: int, cpu: int) -> None:
    """Increase a pod's request, and update the sums."""
    manifests[f"Pod/{name}"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{cpu}m"
    asked = of["nodes"][number]["requests"]
    asked["cpu"] = f"{int(asked['cpu'].removesuffix('m')) + cpu - 250}m"


def claiming(manifests: Cluster, claimed: int, declared: int) -> None:
    """Let a pod claim devices of its node, of which a NodeOverlay declares some."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "some"}]
    manifests["Pod/web-0"]["spec"].update(resourceClaims=claims)
    asked = {
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": claimed}}]}
    }
    manifests["ResourceClaimTemplate/some"] = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "some", "namespace": "default"},
        "spec": {"spec": asked},
    }
    entries = [{"driver": "gpu.example.com", "count": declared}]
    manifests["NodeOverlay/some"] = {
        "kind": "NodeOverlay",
        "metadata": {"name": "some", "annotations": {"nodesmith.dev/devices": json.dumps(entries)}},
        "spec": {"requirements": []},
    }


def listed(of: Plan, number: int, *types: str) -> None:
    of["nodes"][number]["instanceTypes"] = list(types)


def reserved(
    manifests: Cluster, of: Plan, number: int, *, free: int = 2, price: float = 0.0, **shown: str
) -> None:
    """Let some of the first nodes use a capacity reservation of m.large in z-a."""
    labels = {"type": "default", "interruptible": "false"}
    for each in of["nodes"][:number]:
        each.update(instanceTypes=["m.large"], zone="z-a", capacityType="reserved", priceHourly=price)
        each["labels"] = {f"{RESERVATION}-{key}": value for key, value in {**labels, "id": "cr-1"}.items()}
    held = {
        "id": "cr-1",
        "instanceType": "m.large",
        "availabilityZone": "z-a",
        "availableInstanceCount": free,
    }
    manifests["EC2NodeClass/default"] = nodeclass(capacityReservations=[{**held, **shown}])
    spec = manifests["NodePool/default"]["spec"]["template"]["spec"]
    spec["requirements"] = []
    of["priceHourly"] = of["lowerBoundHourly"] = sum(each["priceHourly"] for each in of["nodes"])


MUTATIONS: dict[str, tuple[Kind, Mutation]] = {
    "a pod is forgotten": (Kind.POD_MISSING, lambda _, p: p["unplaced"].clear()),
    "a pod is on two nodes": (Kind.POD_TWICE, lambda _, p: p["nodes"][3]["pods"].append("default/web-0")),
    "a pod is placed and unplaced": (
        Kind.POD_TWICE,
        lambda _, p: p["existing"][0]["pods"].append("default/giant"),
    ),
    "an unknown pod": (Kind.POD_UNKNOWN, lambda _, p: p["nodes"][0]["pods"].append("default/nobody")),
    "a pod that is bound already": (
        Kind.POD_NOT_PENDING,
        lambda _, p: p["existing"][0]["pods"].append("default/there"),
    ),
    "an unknown node": (Kind.NODE_UNKNOWN, lambda _, p: p["existing"][0].update(node="nowhere")),
    "a node that is being deleted": (
        Kind.NODE_CLOSED,
        lambda m, _: m["Node/old"]["metadata"].update(deletionTimestamp="2026-11-21T12:00:00Z"),
    ),
    "two nodes of one name": (Kind.NODE_TWICE, lambda _, p: p["nodes"][1].update(name="n-a")),
    "a new node with an old one's name": (Kind.NODE_TWICE, lambda _, p: p["nodes"][1].update(name="old")),
    "an unknown NodePool": (Kind.NODEPOOL, lambda _, p: p["nodes"][0].update(nodePool="other")),
    "an unknown type": (Kind.INSTANCE_TYPE, lambda _, p: listed(p, 0, "m.large", "m.gigantic")),
    "a type that is not on its own list": (
        Kind.INSTANCE_TYPE,
        lambda _, p: listed(p, 0, "m.huge", "g.large"),
    ),
    "an unknown zone": (Kind.OFFERING, lambda _, p: p["nodes"][0].update(zone="z-x")),
    "an offering that is sold out": (Kind.OFFERING, lambda _, p: p["nodes"][1].update(zone="z-c")),
    "a wrong price": (Kind.PRICE, lambda _, p: p["nodes"][0].update(priceHourly=0.19)),
    "the price of another capacity type": (
        Kind.PRICE,
        lambda _, p: p["nodes"][0].update(capacityType="spot"),
    ),
    "a wrong sum": (Kind.SUM, lambda _, p: p.update(priceHourly=p["priceHourly"] + 0.01)),
    "a bound above the price": (Kind.BOUND, lambda _, p: p.update(lowerBoundHourly=p["priceHourly"] + 0.01)),
    "requests without the DaemonSet's": (
        Kind.REQUESTS,
        lambda _, p: p["nodes"][0]["requests"].update(cpu="1"),
    ),
    "no reason": (Kind.REASON, lambda _, p: p["unplaced"][0].update(reason="")),
    "no remedy": (Kind.FORMAT, lambda _, p: p["unplaced"][0].pop("fix")),
    "a capacity type that the NodePool excludes": (
        Kind.REQUIREMENTS,
        lambda m, _: m["NodePool/default"]["spec"]["template"]["spec"]["requirements"][1].update(
            values=["spot"]
        ),
    ),
    "a type that the NodePool excludes": (Kind.REQUIREMENTS, lambda _, p: listed(p, 3, "m.large", "m.small")),
    "too few types for minValues": (Kind.MIN_VALUES, lambda _, p: listed(p, 0, "m.large")),
    "a limit that the largest type of a node exceeds": (
        Kind.LIMIT,
        lambda _, p: listed(p, 3, "m.large", "m.huge"),
    ),
    "one node too many": (
        Kind.LIMIT,
        lambda m, _: m["NodePool/default"]["spec"]["limits"].update(nodes="2"),
    ),
    "a limit that existing nodes have used up": (
        Kind.LIMIT,
        lambda m, _: m["Node/old"]["metadata"]["labels"].update({"karpenter.sh/nodepool": "team"}),
    ),
    "a NodePool with a higher weight is ignored": (
        Kind.WEIGHT,
        lambda m, _: (
            m["Pod/teamster"]["spec"].pop("nodeSelector"),
            m.update({"NodePool/first": nodepool("first", weight=50)}),
        ),
    ),
    "images of another architecture": (
        Kind.IMAGE,
        lambda m, _: m.update(
            {
                "EC2NodeClass/default": nodeclass(
                    amis=[{"requirements": [wants("kubernetes.io/arch", "In", "arm64")]}]
                )
            }
        ),
    ),
    "more of a reservation than there is": (Kind.LIMIT, lambda m, p: reserved(m, p, 2, free=1)),
    "a reservation of another type": (Kind.OFFERING, lambda m, p: reserved(m, p, 1, instanceType="m.huge")),
    "a reservation that ends": (Kind.OFFERING, lambda m, p: reserved(m, p, 1, state="expiring")),
    "a reservation that is not free of charge": (Kind.PRICE, lambda m, p: reserved(m, p, 1, price=0.2)),
    "a node without the label that is selected": (Kind.LABELS, lambda _, p: moved(p, "choosy", 0)),
    "a label that must not exist": (
        Kind.LABELS,
        lambda m, _: m["NodePool/default"]["spec"]["template"]["metadata"]["labels"].update(disk="hdd"),
    ),
    "a taint that is not tolerated": (Kind.TAINT, lambda _, p: moved(p, "port-0", 3)),
    "a cordoned node": (Kind.TAINT, lambda m, _: m["Node/old"]["spec"].update(unschedulable=True)),
    "a node that is too full": (Kind.RESOURCES, lambda m, p: asking(m, p, "web-0", 0, 4000)),
    "a node that the DaemonSet overfills": (Kind.RESOURCES, lambda m, p: asking(m, p, "web-0", 0, 2751)),
    "a type on the list that is too small": (Kind.RESOURCES, lambda m, p: asking(m, p, "web-2", 2, 1001)),
    "a node bought for claimed devices": (
        Kind.RESOURCES,
        lambda m, _: m["Pod/web-0"]["spec"].update(resourceClaims=[{"name": "gpu"}]),
    ),
    "a node with fewer devices than its pods claim": (Kind.RESOURCES, lambda m, _: claiming(m, 2, 1)),
    "an existing node that is too full": (
        Kind.RESOURCES,
        lambda m, _: m["Node/old"]["status"]["allocatable"].update(cpu="999m"),
    ),
    "a host port that another pod has": (Kind.HOST_PORT, lambda _, p: moved(p, "port-0", 1)),
    "a host port that the DaemonSet has": (
        Kind.HOST_PORT,
        lambda m, _: m["Pod/loud"]["spec"]["containers"][0].update(ports=[{"hostPort": 9100}]),
    ),
    "a volume in another zone": (Kind.VOLUME, lambda _, p: moved(p, "mounts-too", 1)),
    "a claim that does not exist": (Kind.VOLUME, lambda m, _: m.pop("PersistentVolumeClaim/c2")),
    "more volumes than a node attaches": (Kind.ATTACH_LIMIT, lambda _, p: moved(p, "mounts-too", 0)),
    "a skew that is too large": (Kind.SPREAD, lambda _, p: moved(p, "web-1", 0)),
    "two pods that avoid their kind on one node": (Kind.ANTI_AFFINITY, lambda _, p: moved(p, "shy-0", 2)),
    "a pod with one that avoids it": (
        Kind.ANTI_AFFINITY,
        lambda _, p: moved_to_old(p, "loud"),
    ),
    "no pod where affinity requires one": (
        Kind.AFFINITY,
        lambda m, _: m["Pod/fond"]["spec"].update(affinity=near("nobody")),
    ),
    "a domain that the plan leaves open": (
        Kind.UNSETTLED,
        lambda m, _: m["Pod/fond"]["spec"].update(affinity=near("web", TYPE)),
    ),
    "a node without pods": (
        Kind.NODE_EMPTY,
        lambda _, p: p["nodes"].append(buys("m", "500m", [], ["m.large", "m.huge"], daemons=1)),
    ),
    "an unplaced pod that would fit": (
        Kind.COULD_FIT,
        lambda m, _: m["Pod/giant"]["spec"]["containers"][0]["resources"]["requests"].update(cpu="100m"),
    ),
}


def test_the_audit_finds_nothing_in_the_correct_plan() -> None:
    assert kinds(list(cluster().values()), right()) == set()


def test_the_correct_plan_may_use_a_reservation() -> None:
    manifests, bought = cluster(), right()
    reserved(manifests, bought, 1)
    assert kinds(list(manifests.values()), bought) == set()


def test_the_correct_plan_may_have_as_many_devices_as_its_pods_claim() -> None:
    manifests, bought = cluster(), right()
    claiming(manifests, 2, 2)
    assert kinds(list(manifests.values()), bought) == set()


def test_every_kind_of_violation_is_planted_except_unreadable_plans() -> None:
    assert {kind for kind, _ in MUTATIONS.values()} == set(Kind) - {Kind.UNREADABLE}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_in_a_good_plan_is_found(name: str) -> None:
    kind, mutate = MUTATIONS[name]
    manifests, bought = cluster(), right()
    mutate(manifests, bought)
    assert kind in kinds(list(manifests.values()), bought)


def one_node(change: Callable[[dict[str, Any]], object]) -> Callable[[Plan], object]:
    """Plant a fault in the middle node."""
    return lambda of: change(of["nodes"][len(of["nodes"]) // 2])


PLANTED: dict[str, tuple[Kind, Callable[[Plan], object]]] = {
    "a pod forgotten": (Kind.POD_MISSING, one_node(lambda n: n["pods"].pop())),
    "a pod twice": (Kind.POD_TWICE, one_node(lambda n: n["pods"].append(n["pods"][0]))),
    "an unknown pod": (Kind.POD_UNKNOWN, one_node(lambda n: n["pods"].append("default/nobody"))),
    "a wrong price": (Kind.PRICE, one_node(lambda n: n.update(priceHourly=n["priceHourly"] + 1))),
    "an unknown zone": (Kind.OFFERING, one_node(lambda n: n.update(zone="nowhere"))),
    "an unknown NodePool": (Kind.NODEPOOL, one_node(lambda n: n.update(nodePool="nobody's"))),
    "an unknown type": (Kind.INSTANCE_TYPE, one_node(lambda n: n["instanceTypes"].append("nothing"))),
    "requests of too many pods": (Kind.REQUESTS, one_node(lambda n: n["requests"].update(pods="1000"))),
    "a name twice": (Kind.NODE_TWICE, lambda p: p["nodes"].append(p["nodes"][0])),
    "a wrong sum": (Kind.SUM, lambda p: p.update(priceHourly=p["priceHourly"] + 1)),
    "a bound above the price": (Kind.BOUND, lambda p: p.update(lowerBoundHourly=p["priceHourly"] + 1)),
}


@lru_cache(maxsize=64)
def solved(seed: int) -> tuple[Problem, Plan]:
    problem = draw(seed, LARGE)
    return problem, planned(problem.manifests, problem.catalog).plan


@settings(max_examples=sampled(25, whole=60), deadline=None)
@given(st.sampled_from(SEEDS), st.sampled_from(sorted(PLANTED)))
def test_a_fault_in_one_of_the_solvers_plans_is_found(seed: int, name: str) -> None:
    problem, bought = solved(seed)
    assume(bought["nodes"])
    kind, mutate = PLANTED[name]
    worse = deepcopy(bought)
    mutate(worse)
    before = audit(problem.manifests, problem.catalog, bought)
    after = audit(problem.manifests, problem.catalog, worse)
    assert kind in {violation.kind for violation in set(after) - set(before)}
