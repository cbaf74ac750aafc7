from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith_cli.local.quiet import Scene, undecided_nodepools, unrest

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def pod(node: str = "", phase: str = "Pending", created: float = 60) -> dict[str, Any]:
    created_at = f"{ago(created):%Y-%m-%dT%H:%M:%SZ}"
    return {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "creationTimestamp": created_at},
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


def claim(initialized: str) -> dict[str, Any]:
    conditions = [{"type": "Initialized", "status": initialized}]
    return {"kind": "NodeClaim", "metadata": {"name": "c"}, "status": {"conditions": conditions}}


def scene(changed: float = 60, decided: float | None = 60, **objects: Any) -> Scene:
    return Scene(NOW, ago(changed), None if decided is None else ago(decided), **objects)


def test_an_empty_cluster_is_quiet() -> None:
    assert unrest(scene(changed=0, decided=None)) == ""


def test_a_cluster_with_running_pods_and_initialized_claims_is_quiet_at_once() -> None:
    objects: dict[str, Any] = {"pods": [pod("n1", "Running")], "nodeclaims": [claim("True")]}

    assert unrest(scene(changed=0, workloads={"deployments": [deployment(1, 1)]}, **objects)) == ""


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ({"workloads": {"deployments": [deployment(3, 2)]}}, "Deployment/web has not all its pods"),
        (
            {"workloads": {"deployments": [deployment(0, 0, observed=0)]}},
            "Deployment/web has not all its pods",
        ),
        ({"nodeclaims": [claim("Unknown")]}, "NodeClaim/c is on its way"),
        ({"pods": [pod("n1")]}, "Pod/default/a is starting"),
    ],
)
def test_what_is_under_way_is_unrest_however_long_it_takes(objects: dict[str, Any], said: str) -> None:
    assert unrest(scene(changed=3600, **objects)) == said


@pytest.mark.parametrize(
    ("changed", "decided", "said"),
    [
        (60, None, "Pod/default/a waits for a decision"),
        (60, 90, "Pod/default/a waits for a decision"),
        (5, 60, "Pod/default/a is pending"),
        (60, 5, "Pod/default/a is pending"),
        (30, 30, ""),
    ],
)
def test_a_pending_pod_is_stuck_when_it_was_decided_about_and_nothing_came_of_it(
    changed: float, decided: float | None, said: str
) -> None:
    assert unrest(scene(changed, decided, pods=[pod()])) == said


def test_pods_that_have_ended_do_not_disturb() -> None:
    assert unrest(scene(decided=None, pods=[pod(phase="Succeeded")])) == ""


def test_nodepools_are_undecided_until_their_ready_condition_says_yes_or_no() -> None:
    def pool(name: str, *status: str) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": each} for each in status]
        return {"metadata": {"name": name}, "status": {"conditions": conditions}}

    pools = [pool("yes", "True"), pool("no", "False"), pool("unknown", "Unknown"), pool("new")]
    assert undecided_nodepools(pools) == ["unknown", "new"]
