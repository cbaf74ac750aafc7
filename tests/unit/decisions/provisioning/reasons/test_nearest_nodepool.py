"""Which NodePool's refusal a pending pod is told first, and that no other NodePool's is hidden behind it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import Unplaced, decide
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.nodeclasses.status import Image
from tests.builders import (
    NOW,
    ZONES,
    daemon,
    expression,
    inputs,
    ledger,
    nodeclass_manifest,
    nodeclass_status,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)

TYPE = "node.kubernetes.io/instance-type"
GPU = {"nvidia.com/gpu": "1"}
ONE_GPU = expression(TYPE, "In", "g5.xlarge")
GENERAL = nodepool_manifest()
BOOTABLE = {"nodeclasses": {"default": nodeclass_status(images=(Image("ami-1"),))}}
"""its image boots every type, those with GPUs as well"""


def unplaced(of: Shape, *pools: dict[str, Any], ledger_: Any = None, **fields: Any) -> Unplaced:
    seen = snapshot(pods=pods(of), nodepools=pools, **fields)
    plan = decide(inputs(snapshot=seen, ledger=ledger_ or ledger()))
    assert not plan.nodes
    (group,) = plan.unplaced
    return group


def refused(*types: str) -> dict[OfferingKey, Backoff]:
    return {
        OfferingKey(capacity_type, name, zone): Backoff(
            NOW + timedelta(minutes=3), 1, "InsufficientInstanceCapacity"
        )
        for name in types
        for capacity_type in ("spot", "on-demand")
        for zone in ZONES
    }


def deleting(pool: dict[str, Any]) -> dict[str, Any]:
    return {**pool, "metadata": {**pool["metadata"], "deletionTimestamp": "2024-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("gpus", "known", "said"),
    [
        (nodepool_manifest("gpu", requirements=[ONE_GPU], nodeclass="gone"), {}, "EC2NodeClass 'gone'"),
        (
            nodepool_manifest("gpu", requirements=[ONE_GPU]),
            {"unavailable": refused("g5.xlarge")},
            "instance types has an offering left",
        ),
        (deleting(nodepool_manifest("gpu", requirements=[ONE_GPU])), {}, "it is being deleted"),
        (
            nodepool_manifest(
                "gpu",
                requirements=[ONE_GPU],
                taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
            ),
            {},
            "pods do not tolerate the taint nvidia.com/gpu:NoSchedule",
        ),
    ],
)
def test_the_only_nodepool_with_gpus_is_nearest_for_pods_with_gpus(
    gpus: dict[str, Any], known: dict[str, Any], said: str
) -> None:
    group = unplaced(shape(requests=GPU), GENERAL, gpus, ledger_=ledger(**known | BOOTABLE))

    assert group.cause.nodepool == "gpu"
    assert said in group.cause.text.partition("nearest is NodePool gpu: ")[2]
    assert "allow instance types with nvidia.com/gpu" not in group.cause.fix


def test_a_nodepool_that_cannot_buy_is_not_nearest_if_it_could_not_serve_the_pods_either() -> None:
    small = nodepool_manifest("small", requirements=[expression(TYPE, "In", "m5.large")], nodeclass="gone")

    assert unplaced(shape("10000"), GENERAL, small).cause.nodepool == "default"
    assert unplaced(shape(requests=GPU), GENERAL, small).cause.nodepool == "default"
    group = unplaced(shape("10000"), GENERAL, nodepool_manifest("arm", nodeclass="gone"))
    assert group.cause.blocking == "resource cpu"


def test_a_selected_nodepool_that_cannot_buy_is_nearest() -> None:
    team = nodepool_manifest("team", labels={"team": "a"}, nodeclass="gone")

    group = unplaced(shape(nodeSelector={"team": "a"}), GENERAL, team, nodeclasses=[nodeclass_manifest()])

    assert group.cause.nodepool == "team"


def test_the_reasons_of_other_nodepools_follow() -> None:
    tainted = nodepool_manifest("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    selected = nodepool_manifest("limited", limits={"cpu": "1"})

    said = unplaced(shape("1"), tainted, selected).cause.text

    assert said.startswith(
        "0 of 2 NodePools fit: 1 at their limit, 1 with a taint that the pods do not tolerate"
    )
    assert "; nearest is NodePool limited: its limit of 1 cpu is reached" in said
    assert said.endswith("; NodePool tainted: pods do not tolerate the taint gpu:NoSchedule")


def test_nodepools_that_the_same_thing_stops_are_described_once() -> None:
    many = [nodepool_manifest(f"team-{n}", labels={"team": str(n)}) for n in range(30)]
    small = nodepool_manifest("small", labels={"team": "31"}, taints=[{"key": "a", "effect": "NoSchedule"}])

    said = unplaced(shape(nodeSelector={"team": "31"}), *many, small).cause.text

    assert said.startswith("0 of 31 NodePools fit: 1 with a taint that the pods do not tolerate, 30 without")
    assert (
        "; nearest is NodePool small: pods do not tolerate the taint a:NoSchedule; NodePool team-0: " in said
    )
    assert said.count("NodePool team-") == 1


def test_all_taints_that_pods_do_not_tolerate_are_named_at_once() -> None:
    taints = [
        {"key": "gpu", "value": "true", "effect": "NoSchedule"},
        {"key": "tolerated", "effect": "NoSchedule"},
        {"key": "batch", "effect": "NoExecute"},
    ]
    of = shape(tolerations=[{"key": "tolerated", "operator": "Exists"}])

    why = unplaced(of, nodepool_manifest(taints=taints)).cause

    assert (
        why.text
        == "NodePool default: pods do not tolerate the taints gpu=true:NoSchedule and batch:NoExecute"
    )
    assert why.fix == "add tolerations for gpu=true:NoSchedule and batch:NoExecute to the pods"
    assert why.blocking == "taint gpu=true:NoSchedule"


def test_a_pod_that_is_too_large_only_because_of_daemonsets_is_told_what_they_take() -> None:
    pool = nodepool_manifest(requirements=[expression(TYPE, "In", "m5.large")])

    why = unplaced(shape("1"), pool, daemonsets=[daemon(cpu="1500m")]).cause

    assert why.text == (
        "NodePool default: one pod asks for 1 cpu, the most that a node offers to pods is 0.43 (m5.large) besides"
        " the 1.5 that its DaemonSets take"
    )


def test_daemonsets_that_fit_nowhere_are_named_with_what_they_ask_for() -> None:
    pool = nodepool_manifest(requirements=[expression(TYPE, "In", "m5.large", "m5.xlarge")])
    daemons = [daemon(cpu="500m"), daemon("greedy", cpu="4")]

    assert unplaced(shape("1"), pool, daemonsets=daemons).cause.text == (
        "NodePool default: its DaemonSets ask for more than any of its instance types offers: 4.5 cpu,"
        " kube-system/greedy 4 of it; the largest, m5.xlarge, offers 3.92"
    )


def static(name: str, **fields: Any) -> dict[str, Any]:
    pool = nodepool_manifest(name, **fields)
    return {**pool, "spec": {**pool["spec"], "replicas": 1}}


def test_a_static_nodepool_without_the_labels_of_the_pods_is_not_nearest() -> None:
    blue = shape(nodeSelector={"team": "blue"})
    red = nodepool_manifest("red", labels={"team": "red"})

    for pools in (
        (static("a", labels={"team": "green"}), red),
        (static("a"), red),
        (static("a"), deleting(red)),
    ):
        group = unplaced(blue, *pools)
        assert group.cause.nodepool == "red"
        assert group.cause.fix == "allow team In [blue] in NodePool red"
        assert "0 of 2 NodePools fit: 2 without the labels that the pods require" in group.cause.text


def test_a_static_nodepool_with_the_labels_of_the_pods_says_that_it_does_not_follow_them() -> None:
    blue = shape(nodeSelector={"team": "blue"})
    group = unplaced(blue, GENERAL, static("fixed", labels={"team": "blue"}))

    assert group.cause.nodepool == "fixed"
    assert group.cause.fix == "create a NodePool without spec.replicas"
