"""The reasons for pending pods, NodePools that buy nothing, and objects that cannot be read."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.decisions.provisioning.nodepools.tiers import pools as offered
from nodesmith.decisions.provisioning.reasons import reason as why_left
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.model.apimachinery.labels import ZONE, Taint
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.kubernetes.devices import UNKNOWN_DEVICES
from nodesmith.model.kubernetes.pods import Reason, Shape
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.nodeclasses.status import StatusCondition
from nodesmith.model.policies import MinValuesPolicy
from tests.builders import (
    NOW,
    ZONES,
    anti_affinity,
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
)


def decided(of: Shape, *pools: dict[str, Any], ledger_: Any = None, **fields: Any) -> Plan:
    seen = snapshot(pods=pods(of), nodepools=pools, **fields)
    return decide(inputs(snapshot=seen, ledger=ledger_ or ledger()))


def reason(of: Shape, *pools: dict[str, Any], **fields: Any) -> str:
    plan = decided(of, *(pools or (nodepool_manifest(),)), **fields)
    assert not plan.nodes
    (group,) = plan.unplaced
    assert group.pods == ("default/web-0000",)
    return str(group.cause)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            shape("10000"),
            "NodePool default: one pod asks for 10000 cpu, the most that a node offers to pods is",
        ),
        (shape("1", "900Ti"), "one pod asks for 900Ti memory, the most that a node offers to pods is"),
        (
            shape(requests={"nvidia.com/gpu": "1"}),
            "one pod asks for 1 nvidia.com/gpu, and no node offers any; allow instance types with nvidia.com/gpu",
        ),
        (
            shape(requests={"ephemeral-storage": "100Gi"}),
            "; give the EC2NodeClass larger blockDeviceMappings (or instanceStorePolicy RAID0), or ask for at most ",
        ),
        (
            shape("2000000"),
            "(a cpu request of 2000000 looks like a unit mistake)",
        ),
        (
            shape(nodeSelector={"topology.kubernetes.io/zones": ZONES[0]}),
            "does not have known values, did you mean 'topology.kubernetes.io/zone'?",
        ),
        (
            shape(nodeSelector={"example.com/team": "a"}),
            "label 'example.com/team' does not have known values",
        ),
        (
            shape(nodeSelector={"kubernetes.io/arch": "arm64"}),
            "needs kubernetes.io/arch In [arm64], but kubernetes.io/arch In [amd64] is offered",
        ),
        (
            shape(nodeSelector={"topology.kubernetes.io/zone": "us-east-1x"}),
            "no instance type is sold in us-east-1x; use one of us-east-1a, us-east-1b, us-east-1c",
        ),
    ],
)  # fmt: skip
def test_a_pod_that_no_node_can_hold_gets_the_reason(of: Shape, said: str) -> None:
    assert said in reason(of)


def test_the_largest_node_is_named() -> None:
    said = reason(
        shape("10000"),
        nodepool_manifest(
            requirements=(expression("node.kubernetes.io/instance-type", "In", "m5.large", "m5.xlarge"),)
        ),
    )

    assert "the most that a node offers to pods is 3.92 (m5.xlarge)" in said


def test_large_memory_is_given_in_gibibytes_that_a_pod_may_request() -> None:
    pool = nodepool_manifest(
        requirements=(expression("node.kubernetes.io/instance-type", "In", "m5.24xlarge"),)
    )

    (group,) = decided(shape("1", "400Gi"), pool).unplaced

    said = re.search(r"ask for at most (\d+Gi)$", group.cause.fix)
    assert said
    assert f"one pod asks for 400Gi memory, the most that a node offers to pods is {said[1]} " in group.reason
    assert not decided(shape("1", said[1]), pool).unplaced


def test_types_that_are_large_enough_and_short_are_no_reason_to_ask_for_less() -> None:
    sizes = expression("node.kubernetes.io/instance-type", "In", "m5.large", "m5.4xlarge")
    short = {
        OfferingKey(capacity_type, "m5.4xlarge", zone): Backoff(NOW + timedelta(minutes=3), 1, code)
        for capacity_type, code in (
            ("spot", "InsufficientInstanceCapacity"),
            ("on-demand", "VcpuLimitExceeded"),
        )
        for zone in ZONES
    }
    known = ledger(unavailable=short)
    (group,) = decided(shape("8"), nodepool_manifest(requirements=(sizes,)), ledger_=known).unplaced
    assert group.cause.blocking == "offerings"
    assert "EC2 lately refused all instance types that are large enough" in group.reason
    (too_large,) = decided(shape("30"), nodepool_manifest(requirements=(sizes,)), ledger_=known).unplaced
    assert "the most that a node offers to pods is" in too_large.reason


def test_the_nearest_nodepool_is_named_and_the_others_are_counted() -> None:
    tainted = nodepool_manifest(
        "tainted", weight=5, taints=[{"key": "gpu", "value": "true", "effect": "NoSchedule"}]
    )

    said = reason(shape("10000"), nodepool_manifest(), tainted)

    first, second, other, fix = said.split("; ")
    assert first == "0 of 2 NodePools fit: 1 too small, 1 with a taint that the pods do not tolerate"
    assert second.startswith("nearest is NodePool default: one pod asks for 10000 cpu")
    assert other == "NodePool tainted: pods do not tolerate the taint gpu=true:NoSchedule"
    assert fix.startswith("allow instance types with more cpu, or ask for at most ")


def test_a_limit_is_reported_with_its_use_the_smallest_node_and_a_sufficient_value() -> None:
    (group,) = decided(shape("1"), nodepool_manifest(limits={"cpu": "1"})).unplaced

    assert group.cause == Reason(
        "NodePool default: its limit of 1 cpu is reached (0 used, the smallest suitable node takes 2)",
        nodepool="default",
        blocking="limit cpu",
        fix="for this pod raise spec.limits.cpu to at least 2",
    )


def test_the_reason_says_how_much_of_a_limit_nodes_use() -> None:
    there = node(cpu="8", labels={"karpenter.sh/nodepool": "default"}, taints=[Taint("full", "NoSchedule")])

    said = reason(shape("1"), nodepool_manifest(limits={"cpu": "8", "memory": "1Ti"}), nodes=[there])

    assert "its limit of 8 cpu is reached (8 used," in said
    assert said.endswith("for this pod raise spec.limits.cpu to at least 10")


def test_a_limit_that_this_very_decision_used_up_is_named() -> None:
    one = nodepool_manifest(limits={"nodes": "1"})
    hermits = shape(affinity=anti_affinity())

    plan = decide(inputs(snapshot=snapshot(pods=pods(hermits, 3), nodepools=[one])))

    assert len(plan.nodes) == 1
    assert str(plan.unplaced[0].cause) == (
        "NodePool default: its limit of 1 nodes is reached (1 used, the smallest suitable node takes 1);"
        " for these 2 pods raise spec.limits.nodes to at least 3"
    )


def test_the_smallest_suitable_node_is_enough_even_if_a_larger_one_is_cheaper() -> None:
    said = reason(shape("16"), nodepool_manifest(limits={"cpu": "1"}))

    assert "the smallest suitable node takes 24)" in said
    assert said.endswith("for this pod raise spec.limits.cpu to at least 24")


def test_two_reached_limits_are_both_reported() -> None:
    said = reason(shape("1", "1Gi"), nodepool_manifest(limits={"cpu": "1", "memory": "1Gi"}))

    assert "its limit of 1 cpu is reached" in said
    assert "its limit of 1Gi memory is reached" in said
    assert "raise spec.limits.cpu to at least 2 and spec.limits.memory to at least " in said


@pytest.mark.parametrize(
    ("of", "count", "limits"),
    [
        (shape("1"), 12, {"cpu": "8"}),
        (shape("1"), 12, {"cpu": "0"}),
        (shape("3", "12Gi"), 7, {"cpu": "8", "memory": "32Gi"}),
        (shape("1", affinity=anti_affinity()), 5, {"nodes": "2", "cpu": "3"}),
        (shape("100m", "6Gi"), 40, {"memory": "20Gi"}),
        (shape("16"), 3, {"cpu": "1"}),
        (shape("10"), 3, {"cpu": "12", "memory": "8Gi"}),
    ],
)
def test_limits_raised_as_the_reason_says_serve_the_pods(
    of: Shape, count: int, limits: dict[str, str]
) -> None:
    first = decide(
        inputs(snapshot=snapshot(pods=pods(of, count), nodepools=[nodepool_manifest(limits=limits)]))
    )
    (stuck,) = first.unplaced
    raised = dict(re.findall(r"spec\.limits\.(\w+) to at least (\S+)", stuck.cause.fix))
    assert raised

    again = nodepool_manifest(limits=limits | raised)
    plan = decide(inputs(snapshot=snapshot(pods=pods(of, count), nodepools=[again])))

    assert not plan.unplaced


@pytest.mark.parametrize("limits", [{}, {"cpu": "100", "nodes": "3"}])
def test_pods_left_by_a_run_that_was_cut_short_get_no_reason_about_limits(limits: dict[str, str]) -> None:
    given = inputs(snapshot=snapshot(nodepools=[nodepool_manifest(limits=limits)]))
    offers = offered(given.snapshot, given.ledger, given.catalog, given.settings, given.now)
    web = shape()

    found = why_left(Demand(web, tuple(pods(web, 2))), offers.templates, {}, {})

    assert found == Reason(
        "NodePool default: a node would serve it, but all pods were too much work for one run: the next run"
        " continues",
        nodepool="default",
        blocking="amount of work",
    )


def test_limits_that_only_together_exclude_every_node_are_reported_so() -> None:
    """A c5.xlarge has 4 cpu and 8 GiB, an r5.large 2 and 16."""
    pool = nodepool_manifest(
        limits={"cpu": "3", "memory": "12Gi"},
        requirements=(expression("node.kubernetes.io/instance-type", "In", "c5.xlarge", "r5.large"),),
    )

    (group,) = decided(shape("1"), pool).unplaced

    assert group.cause.blocking == "limits together"
    assert "its limits leave no room for a suitable node (3 cpu, 12Gi memory left)" in group.reason


def test_a_missing_nodepool_is_the_reason() -> None:
    plan = decide(inputs(snapshot=snapshot(pods=pods(shape()), nodepools=())))

    assert [u.reason for u in plan.unplaced] == ["there is no NodePool"]


OBSTACLES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nodeclass missing": (
        {"nodeclass": "gone"},
        {},
        "its EC2NodeClass 'gone' is missing or not valid",
    ),
    "nodeclass not resolved": (
        {},
        {"nodeclasses": {}},
        "its EC2NodeClass 'default' has not been resolved yet",
    ),
    "nodeclass not ready": (
        {},
        {
            "nodeclasses": {
                "default": nodeclass_status(
                    conditions=(
                        StatusCondition("SubnetsReady", "False", "SubnetsNotFound", "no subnet matches"),
                    )
                )
            }
        },
        "its EC2NodeClass 'default' is not ready (SubnetsReady: no subnet matches)",
    ),
    "cluster unknown": ({}, {"cluster": None}, "has not been resolved yet"),
    "backoff": (
        {},
        {
            "nodepool_backoffs": {
                "default": Backoff(NOW + timedelta(minutes=3), 1, "UnauthorizedOperation: no role")
            }
        },
        "its last launch was refused (UnauthorizedOperation: no role); tried again after 12:03:00 UTC",
    ),
    "no type": (
        {"requirements": (expression("karpenter.k8s.aws/instance-family", "In", "zz9"),)},
        {},
        "karpenter.k8s.aws/instance-family In [zz9] removes ",
    ),
    "no offering": (
        {"requirements": (expression("topology.kubernetes.io/zone", "In", "us-east-1f"),)},
        {},
        "it requires topology.kubernetes.io/zone In [us-east-1f], and its EC2NodeClass launches in",
    ),
    "no image": (
        {},
        {"nodeclasses": {"default": nodeclass_status(images=())}},
        "no instance type can boot the images of its EC2NodeClass",
    ),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_pods_repeat_why_a_nodepool_cannot_buy(case: str) -> None:
    pool, known, said = OBSTACLES[case]

    plan = decided(shape(), nodepool_manifest(**pool), ledger_=ledger(**known))

    assert said in (plan.obstacles or {})["default"]
    assert said in plan.unplaced[0].reason


def test_pods_repeat_what_the_nodeclass_itself_shows() -> None:
    shown = [{"type": "Ready", "status": "False", "message": "no role"}]
    unready = {**nodeclass_manifest(), "status": {"conditions": shown}}

    plan = decide(inputs(snapshot=snapshot(pods=pods(shape()), nodeclasses=[unready])))

    assert plan.obstacles == {"default": "its EC2NodeClass 'default' is not Ready (no role)"}


def test_a_nodepool_without_types_names_the_requirements_that_remove_most() -> None:
    family, arch = "karpenter.k8s.aws/instance-family", "kubernetes.io/arch"
    needless = [expression(f"example.com/{n}", "In", "a") for n in range(9)]
    pool = nodepool_manifest(
        requirements=[expression(arch, "In", "arm64"), expression(family, "In", "m5"), *needless]
    )

    (group,) = decided(shape(), pool).unplaced

    number = r"([\d,]+)"
    said = rf"\(of {number} types, {family} In \[m5\] removes {number}; {arch} .* removes {number}\)$"
    counts = re.search(said, group.reason)
    assert counts
    all_, by_family, by_arch = (int(count.replace(",", "")) for count in counts.groups())
    assert all_ > by_family > by_arch > 0
    assert (group.cause.blocking, group.cause.fix) == (
        "NodePool default",
        "loosen the requirement that removes most instance types",
    )


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("karpenter.sh/capacity-type", "Spot", "did you mean 'spot'?"),
        ("kubernetes.io/arch", "x86", "use one of amd64, arm64"),
        ("kubernetes.io/arch", "AMD64", "did you mean 'amd64'?"),
        ("kubernetes.io/arch", "arm64", "allow kubernetes.io/arch In [arm64] in NodePool default"),
        (
            "karpenter.sh/nodepool",
            "defualt",
            "create that NodePool, or select another, did you mean 'default'?",
        ),
    ],
)
def test_a_nodepool_is_not_to_allow_what_no_node_has(key: str, value: str, fix: str) -> None:
    (group,) = decided(shape(nodeSelector={key: value}), nodepool_manifest()).unplaced

    assert group.cause.fix == fix


@pytest.mark.parametrize(
    ("spec", "blocking", "fix"),
    [
        (
            {"affinity": node_affinity([expression("karpenter.sh/nodepool", "DoesNotExist")])},
            "node affinity",
            "remove that affinity to have nodes bought for the pod",
        ),
        (
            {
                "nodeSelector": {"kubernetes.io/arch": "arm64"},
                "affinity": node_affinity([expression("kubernetes.io/arch", "In", "amd64")]),
            },
            "node selector and affinity",
            "remove one of the two",
        ),
        (
            {"resourceClaims": [{"name": "gpu"}]},
            "resource claims",
            UNKNOWN_DEVICES.partition(": ")[2],
        ),
        ({"overhead": {"memory": "1gb"}}, "requests", "write the amount as Kubernetes does"),
    ],
)
def test_a_pod_that_no_node_can_serve_gets_the_obstacle_and_a_fix(
    spec: dict[str, Any], blocking: str, fix: str
) -> None:
    (group,) = decided(shape(**spec), nodepool_manifest()).ignored

    assert (group.cause.blocking, group.cause.fix) == (blocking, fix)
    assert str(group.cause).count(fix) == 1


@pytest.mark.parametrize(
    ("refusal", "blocking", "fix"),
    [
        (
            "persistentvolumeclaim 'data' not found: create it in the pod's namespace, or fix the name",
            "persistentvolumeclaim 'data'",
            "create it in the pod's namespace, or fix the name",
        ),
        (
            "storageclass.storage.k8s.io 'fsat' of persistentvolumeclaim 'data' not found",
            "storageclass.storage.k8s.io 'fsat'",
            "",
        ),
        (
            "no node reaches all its volumes: persistentvolumeclaim 'a' needs zone-a, persistentvolumeclaim 'b' zone-b",
            "volumes",
            "use volumes of one zone: they cannot be moved",
        ),
    ],
)  # fmt: skip
def test_the_reason_names_what_the_volumes_of_a_pod_lack(refusal: str, blocking: str, fix: str) -> None:
    waiting = [replace(pod, refusal=refusal) for pod in pods(shape())]

    (group,) = decide(inputs(snapshot=snapshot(pods=waiting, nodepools=[nodepool_manifest()]))).ignored

    assert group.cause == Reason(refusal, blocking=blocking, fix=fix)


def changed(manifest: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {**manifest, **{name: {**manifest[name], **part} for name, part in parts.items()}}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (changed(nodepool_manifest("bad"), metadata={"deletionTimestamp": f"{NOW:%FT%TZ}"}), "it is being deleted"),
        (changed(nodepool_manifest("bad"), spec={"replicas": 3}), "it has spec.replicas"),
        (nodepool_manifest("bad", limits={"cpu": "-1"}), "spec.limits.cpu is '-1': must not be negative"),
        (nodepool_manifest("bad", limits={"memory": "1gb"}), "did you mean '1G'"),
        (
            nodepool_manifest("bad", requirements=(expression("kubernetes.io/arch", "Inn", "amd64"),)),
            "spec.template.spec.requirements[0].operator is 'Inn': use one of",
        ),
        (
            nodepool_manifest("bad", requirements=(expression("karpenter.sh/registered", "In", "true"),)),
            "spec.template.spec.requirements[0].key is 'karpenter.sh/registered': the domain karpenter.sh is reserved",
        ),
        (changed(nodepool_manifest("bad"), spec={"template": None}), "spec.template is missing"),
        (
            nodepool_manifest("bad", nodeclass="default") | {"apiVersion": "karpenter.sh/v9"},
            "apiVersion is 'karpenter.sh/v9'",
        ),
    ],
)  # fmt: skip
def test_an_invalid_nodepool_does_not_stop_another(bad: dict[str, Any], said: str) -> None:
    plan = decided(shape(), bad, nodepool_manifest("good"))

    assert [n.claim.nodepool for n in plan.nodes] == ["good"]
    assert said in (plan.obstacles or {})["bad"]


def test_nodepools_without_instance_types_are_named_beside_those_that_serve() -> None:
    picky = nodepool_manifest("picky", requirements=(expression("kubernetes.io/arch", "In", "s390x"),))
    closed = changed(nodepool_manifest("closed"), metadata={"deletionTimestamp": f"{NOW:%FT%TZ}"})

    plan = decided(shape(), picky, closed, nodepool_manifest("good"))

    assert [n.claim.nodepool for n in plan.nodes] == ["good"]
    assert list(plan.without_types) == ["picky"]
    assert "no instance type meets its requirements" in plan.without_types["picky"]
    assert plan.without_types["picky"] == (plan.obstacles or {})["picky"]


SOLD = expression("karpenter.k8s.aws/instance-family", "In", "m5", "c5"), expression(ZONE, "In", *ZONES[:2])


@pytest.mark.parametrize("least", [2, 3])
@pytest.mark.parametrize("key", ["karpenter.k8s.aws/instance-category", ZONE])
def test_nodepools_whose_types_are_too_few_for_min_values_are_named_with_both_numbers(
    key: str, least: int
) -> None:
    choosy = nodepool_manifest("choosy", requirements=(*SOLD, expression(key, "Exists", minValues=least)))

    plan = decided(shape(), choosy, nodepool_manifest("good"))

    short = f"minValues requirement is not met for label(s) {key} 2 of 3; "
    remedy = "lower minValues, or allow more instance types"
    assert [node.claim.nodepool for node in plan.nodes]
    assert dict(plan.without_types) == ({"choosy": short + remedy} if least == 3 else {})


def test_min_values_that_are_not_enforced_leave_no_nodepool_without_types() -> None:
    choosy = nodepool_manifest(requirements=(*SOLD, expression(ZONE, "Exists", minValues=3)))
    strict = inputs(snapshot=snapshot(nodepools=(choosy,), pods=pods(shape())))
    best_effort = replace(strict.settings, min_values_policy=MinValuesPolicy.BEST_EFFORT)

    assert list(decide(strict).without_types) == ["default"]
    assert dict(decide(replace(strict, settings=best_effort)).without_types) == {}


def test_a_nodepool_with_the_nodeclass_of_another_provider_is_ignored() -> None:
    foreign = nodepool_manifest("foreign", weight=50)
    foreign["spec"]["template"]["spec"]["nodeClassRef"] = {
        "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default",
    }  # fmt: skip

    plan = decided(shape(), foreign, nodepool_manifest("good"))

    assert [n.claim.nodepool for n in plan.nodes] == ["good"]
    assert "AKSNodeClass.karpenter.azure.com" in (plan.obstacles or {})["foreign"]


def test_an_invalid_nodeclass_stops_only_its_own_nodepools() -> None:
    bad = nodeclass_manifest("bad", amiSelectorTerms="all")

    plan = decided(
        shape(),
        nodepool_manifest("a", nodeclass="bad", weight=9),
        nodepool_manifest("b"),
        nodeclasses=[bad, nodeclass_manifest()],
    )

    assert [n.claim.nodepool for n in plan.nodes] == ["b"]
    assert any(p.startswith("EC2NodeClass/bad: spec.amiSelectorTerms") for p in plan.problems)


def test_unknown_fields_are_reported_and_do_no_harm() -> None:
    odd = nodepool_manifest()
    odd["spec"]["limit"] = {"cpu": "1"}

    plan = decided(shape(), odd)

    assert len(plan.nodes) == 1
    assert any("spec.limit is an unknown field" in problem for problem in plan.problems)
    assert any("limits" in problem for problem in plan.problems)


def test_objects_that_could_not_even_be_read_are_passed_on() -> None:
    plan = decided(shape(), nodepool_manifest(), problems=("Node/n1: cannot be read",))

    assert "Node/n1: cannot be read" in plan.problems


def test_pods_with_the_same_reason_are_reported_together() -> None:
    huge, picky = shape("10000", app="huge"), shape(app="picky", nodeSelector={"team": "a"})
    some = pods(picky, 2) + pods(huge, 3)

    plan = decide(inputs(pods=some))

    assert [len(group.pods) for group in plan.unplaced] == [2, 3]
    assert plan.unplaced == decide(inputs(pods=some[::-1])).unplaced


def test_a_refused_pod_does_not_stop_others() -> None:
    plan = decide(inputs(pods=pods(shape("10000", app="huge")) + pods(shape(), 3)))

    assert [len(n.claim.nominated) for n in plan.nodes] == [3]


def test_pods_that_opted_out_are_ignored_with_their_reason() -> None:
    out = expression("karpenter.sh/nodepool", "DoesNotExist")
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [out]}]
            }
        }
    }

    plan = decide(inputs(pods=pods(shape(affinity=affinity))))

    assert plan.is_idle
    assert plan.ignored[0].reason.startswith("opted out")


def test_existing_capacity_serves_pods_even_if_nothing_can_be_bought() -> None:
    plan = decided(shape(), nodepool_manifest(nodeclass="gone"), nodes=[node()])

    assert plan.placed == {"node-1": ("default/web-0000",)}
    assert not plan.unplaced


def test_without_pending_pods_there_is_nothing_to_decide() -> None:
    running = [replace(p, node="node-1") for p in pods(shape(), 3)]

    assert decide(inputs(pods=running)).is_idle
