"""Which pods nodes are bought for, and which reasons the others get."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.provisioning.reasons import of_refusal
from nodesmith.decisions.scheduling.demands import provisionable, unserved
from nodesmith.decisions.termination.evictions import not_evictable
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, parse_budget
from nodesmith.model.kubernetes.pods import Pod, Shape
from tests.builders import (
    NOW,
    anti_affinity,
    bind,
    claim,
    daemon,
    expression,
    inputs,
    node_affinity,
    pods,
    shape,
    snapshot,
    spread,
)


def judged(*some: Pod) -> tuple[list[str], dict[str, str]]:
    wanted, ignored = provisionable(some)
    return [p.key for p in wanted], {p.key: why for p, why in ignored}


def test_an_unschedulable_pod_is_provisioned_for() -> None:
    assert judged(*pods(shape(), 2)) == (["default/web-0000", "default/web-0001"], {})


@pytest.mark.parametrize("owner", ["Job/j", "StatefulSet/s", "Custom/c", ""])
def test_it_does_not_matter_who_owns_the_pod(owner: str) -> None:
    assert len(judged(*pods(shape(owner=owner)))[0]) == 1


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pods(shape(), node="n1")[0], id="bound"),
        pytest.param(pods(daemon())[0], id="of a DaemonSet"),
        pytest.param(pods(shape(owner="Node/n1"))[0], id="of its node (a static pod)"),
        pytest.param(replace(pods(shape())[0], deleting=True), id="being deleted"),
    ],
)
def test_a_pod_that_needs_no_node_of_ours_is_not_mentioned(pod: Pod) -> None:
    assert judged(pod) == ([], {})


def test_a_pod_that_the_scheduler_has_not_refused_waits_for_the_scheduler() -> None:
    wanted, ignored = judged(*pods(shape(), unschedulable=False))

    assert not wanted
    assert "has not called it unschedulable" in ignored["default/web-0000"]


def test_a_pod_behind_scheduling_gates_is_told_their_names() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/quota"}]
    _, ignored = judged(*pods(shape(schedulingGates=gates), unschedulable=False))
    _, held = judged(*pods(shape(schedulingGates=gates[:1]), unschedulable=False))

    assert ignored["default/web-0000"] == (
        "it waits behind the scheduling gates kueue.x-k8s.io/admission, example.com/quota"
    )
    assert held["default/web-0000"] == "it waits behind the scheduling gate kueue.x-k8s.io/admission"
    assert of_refusal(held["default/web-0000"]).fix == (
        "see why the controller that removes it does not, or remove it"
    )


def test_a_pod_behind_a_scheduling_gate_gets_no_event_because_nothing_is_wrong_with_it() -> None:
    gated = pods(shape(schedulingGates=[{"name": "example.com/quota"}]), unschedulable=False)
    (lost,) = pods(shape(), prefix="lost")
    lost = replace(lost, refusal="persistentvolumeclaim 'x' not found")

    plan = decide(inputs(snapshot=snapshot(pods=[*gated, lost])))

    assert [group.pods for group in plan.refused] == [("default/lost-0000",)]
    assert len(plan.ignored) == 2


def test_a_pod_that_the_scheduler_has_nominated_for_a_node_is_left_alone() -> None:
    wanted, ignored = judged(replace(pods(shape())[0], nominated_node="node-1"))

    assert not wanted
    assert ignored["default/web-0000"].startswith(
        "the scheduler has nominated it for node-1: it waits for pods"
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "opted out": (
        {"affinity": node_affinity([expression("karpenter.sh/nodepool", "DoesNotExist")])},
        "opted out: the pod requires that karpenter.sh/nodepool does not exist",
    ),
    "restricted label": (
        {"nodeSelector": {"karpenter.sh/registered": "true"}},
        "the domain karpenter.sh is reserved",
    ),
    "volume that an older writer did not look at": (
        {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data-0"}}]},
        "the snapshot lacks the node affinity of its volumes: update the forwarder",
    ),
    "volume out of reach": (
        {
            "nodeSelector": {"topology.kubernetes.io/zone": "us-east-1a"},
            "volumeNodeAffinity": [[expression("topology.kubernetes.io/zone", "In", "us-east-1b")]],
        },
        "its volumes are out of reach of its node selector or affinity",
    ),
    "quantity": ({"overhead": {"memory": "1gb"}}, "did you mean '1G'"),
    "negative": ({"overhead": {"cpu": "-2"}}, "its request of -1 cpu is negative"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_whose_rules_cannot_be_kept_is_ignored_with_the_one_reason(case: str) -> None:
    spec, said = REFUSED[case]

    wanted, ignored = judged(*pods(shape(**spec)))

    assert not wanted
    assert said in ignored["default/web-0000"]


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": spread("example.com/rack", hard=False)},
        {"topologySpreadConstraints": spread(hard=True)},
        {"topologySpreadConstraints": spread("example.com/rack", hard=True)},
        {"affinity": anti_affinity()},
        {"affinity": anti_affinity(key="topology.kubernetes.io/zone")},
        {"nodeSelector": {"kubernetes.io/hostname": "n1"}},
        {"priority": -10},
    ],
)
def test_satisfiable_rules_and_preferences_do_not_exclude_a_pod(spec: dict[str, Any]) -> None:
    assert len(judged(*pods(shape(**spec)))[0]) == 1


def test_a_pod_that_cannot_be_read_does_not_hide_others() -> None:
    bad: Shape = shape(app="bad", tolerations=["all"])

    wanted, ignored = judged(*pods(bad), *pods(shape()))

    assert wanted == ["default/web-0000"]
    assert "cannot be read" in ignored["default/bad-0000"]


def test_pods_whose_claim_is_on_its_way_are_not_served_twice() -> None:
    some = pods(shape(), 3)

    fresh, waiting = unserved(some, {"default/web-0001": "default-x1"})

    assert [p.key for p in fresh] == ["default/web-0000", "default/web-0002"]
    assert [p.key for p in waiting] == ["default/web-0001"]


@pytest.mark.parametrize(
    ("owner", "provided"), [("ReplicaSet/web", True), ("", False), ("DaemonSet/web", False)]
)
def test_pods_on_a_node_that_goes_away_are_provided_for_if_they_come_back(owner: str, provided: bool) -> None:
    of = replace(shape(), owner=owner)

    wanted, ignored = provisionable(bind(of, "going") + bind(of, "staying"), {"going"})

    assert [pod.node for pod in wanted] == (["going"] if provided else [])
    assert not ignored


@pytest.mark.parametrize(("owner", "provided"), [("StatefulSet/db", True), ("ReplicaSet/web", False)])
def test_a_pod_that_leaves_a_node_that_goes_away_is_provided_for_if_it_comes_back_only_then(
    owner: str, provided: bool
) -> None:
    """A ReplicaSet has created another pod already."""
    leaving = bind(shape(owner=owner), "going", deleting=True) + bind(
        shape(owner=owner), "staying", deleting=True
    )

    wanted, _ = provisionable(leaving, {"going"})

    assert [pod.node for pod in wanted] == (["going"] if provided else [])


def budget(**spec: Any) -> PodDisruptionBudget:
    """Return a PodDisruptionBudget for all pods; it needs one of two healthy pods."""
    metadata = {"namespace": "default", "name": "web"}
    status = {"expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 0}
    return parse_budget({"metadata": metadata, "spec": {"selector": {}, **spec}, "status": status})


@pytest.mark.parametrize(
    ("annotation", "budgets", "is_provided_for"),
    [
        ("", (), True),
        ("true", (), False),
        ("1h", (), False),
        ("1m", (), True),
        ("", (budget(minAvailable=1),), True),
        ("", (budget(maxUnavailable=0),), False),
        ("", (budget(maxUnavailable="0%"),), False),
        ("", (budget(minAvailable="100%"),), False),
        ("", (budget(minAvailable=1), budget(minAvailable=1)), False),
    ],
)
def test_pods_that_cannot_be_evicted_are_provided_for_only_before_the_deadline_of_their_node(
    annotation: str, budgets: tuple[PodDisruptionBudget, ...], is_provided_for: bool
) -> None:
    annotations = {"karpenter.sh/do-not-disrupt": annotation} if annotation else {}
    of = replace(shape(), owner="ReplicaSet/web", annotations=annotations)
    seen = snapshot(pods=bind(of, "going", started_at=NOW - timedelta(minutes=2)), budgets=budgets)
    ending = claim(phase=Phase.TERMINATING, node_name="going")
    hurried = replace(ending, deadline=NOW + timedelta(minutes=1))

    def provided_for(ends: NodeClaim) -> bool:
        return bool(provisionable(seen.pods, {"going"}, not_evictable(seen, [ends], NOW))[0])

    assert provided_for(ending) == is_provided_for
    assert provided_for(hurried) == (annotation != "true")
