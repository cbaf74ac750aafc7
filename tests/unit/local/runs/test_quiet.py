from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith_local.runs.quiet import FOR_GOOD, ClusterState, pending_activity, undecided_nodepools

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
HELPED = "Pod/default/a may benefit from the latest change"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def pod(node: str = "", phase: str = "Pending") -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }


def deployment(replicas: int, made: int, observed: int = 1) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "web", "generation": 1},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": observed, "replicas": made},
    }


def claim(initialized: str, **others: str) -> dict[str, Any]:
    shown = {"Initialized": initialized} | others
    conditions = [{"type": kind, "status": status} for kind, status in shown.items()]
    return {"kind": "NodeClaim", "metadata": {"name": "c"}, "status": {"conditions": conditions}}


def scene(changed: float = 60, refused: datetime | None = None, **objects: Any) -> ClusterState:
    known = {} if refused is None else {"default/a": refused}
    return ClusterState(NOW, ago(changed), lambda: known, **objects)


def test_an_empty_cluster_is_quiet() -> None:
    assert pending_activity(scene(changed=0)) == ""


def test_a_cluster_with_running_pods_and_initialized_claims_is_quiet_at_once() -> None:
    objects: dict[str, Any] = {"pods": [pod("n1", "Running")], "nodeclaims": [claim("True")]}

    assert pending_activity(scene(changed=0, workloads={"deployments": [deployment(1, 1)]}, **objects)) == ""


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ({"workloads": {"deployments": [deployment(3, 2)]}}, "Deployment/web does not have all its pods yet"),
        (
            {"workloads": {"deployments": [deployment(0, 0, observed=0)]}},
            "Deployment/web does not have all its pods yet",
        ),
        ({"nodeclaims": [claim("Unknown")]}, "NodeClaim/c is on its way"),
        ({"nodeclaims": [claim("True", DisruptionReason="True")]}, "NodeClaim/c is being disrupted"),
        ({"pods": [pod("n1")]}, "Pod/default/a is starting"),
    ],
)
def test_what_is_under_way_counts_as_activity_however_long_it_takes(
    objects: dict[str, Any], said: str
) -> None:
    assert pending_activity(scene(changed=3600, **objects)) == said


@pytest.mark.parametrize(
    ("changed", "refused", "said"),
    [
        (3600, None, "Pod/default/a waits for a decision or for its node"),
        (5, ago(1), HELPED),
        (3600, ago(3590), HELPED),
        (60, ago(40), ""),
        (5, FOR_GOOD, HELPED),
        (20, FOR_GOOD, ""),
    ],
)
def test_a_pending_pod_is_stuck_if_a_decision_after_the_last_change_settled_refused_it(
    changed: float, refused: datetime | None, said: str
) -> None:
    assert pending_activity(scene(changed, refused, pods=[pod()])) == said


def test_a_statefulset_whose_first_pod_is_stuck_is_not_waited_for() -> None:
    db = deployment(3, 1) | {"kind": "StatefulSet"}
    db["metadata"] |= {"uid": "u1"}
    stuck = pod()
    stuck["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "uid": "u1"}]
    sets = {"statefulsets": [db]}

    assert pending_activity(scene(60, NOW, pods=[stuck], workloads=sets)) == ""
    assert (
        pending_activity(scene(60, NOW, workloads=sets)) == "StatefulSet/web does not have all its pods yet"
    )


def test_pods_that_have_ended_do_not_disturb() -> None:
    assert pending_activity(scene(pods=[pod(phase="Succeeded")])) == ""


def test_nodepools_are_undecided_until_their_ready_condition_says_yes_or_no() -> None:
    def pool(name: str, *status: str) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": each} for each in status]
        return {"kind": "NodePool", "metadata": {"name": name}, "status": {"conditions": conditions}}

    pools = [pool("yes", "True"), pool("no", "False"), pool("unknown", "Unknown"), pool("new")]
    assert undecided_nodepools(pools) == ["NodePool/unknown", "NodePool/new"]


@pytest.mark.parametrize("kind", ["NodePool", "EC2NodeClass"])
def test_a_refused_pod_is_not_stuck_while_a_nodepool_or_its_class_is_still_undecided(kind: str) -> None:
    new = {"kind": kind, "metadata": {"name": "new"}}

    said = pending_activity(scene(3600, NOW, pods=[pod()], nodepools=[new]))

    assert said == f"{kind}/new has no known readiness yet"
    assert pending_activity(scene(3600, nodepools=[new])) == ""
