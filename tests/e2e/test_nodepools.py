"""NodePools that come late, are wrong, are preferred, are taken up: what pods get then, and what users are told."""

from __future__ import annotations

import json
from typing import Any

from nodesmith.model.labels import NODEPOOL
from tests.e2e.conftest import Start
from tests.e2e.manifests import Manifest, deployment, nodeclass, nodepool, requirement, taint
from tests.e2e.system import CLUSTER, System


def pools_of(system: System, app: str) -> set[str]:
    """Give the NodePools whose nodes the pods of an app run on."""
    return {str(system.node_of(pod)["metadata"]["labels"].get(NODEPOOL)) for pod in system.pods(app)}


def explained(system: System, app: str) -> dict[str, Any]:
    """Give what `nodesmith explain pod` says of the first pod of an app that has no node."""
    waiting = next(p["metadata"]["name"] for p in system.pods(app) if not p["spec"].get("nodeName"))
    done = system.nodesmith("explain", "pod", f"default/{waiting}", "-o", "json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_nodepool_that_comes_after_the_pods_serves_them(start: Start) -> None:
    system = start()
    system.apply(deployment("web", 5))
    system.until("the pods are looked at", lambda: system.decided("web"))
    assert system.instances() == []

    system.apply(nodeclass(CLUSTER), nodepool())

    system.until_running(5)
    system.until_settled()


def test_a_broken_nodepool_serves_once_it_is_mended(start: Start) -> None:
    system = start()
    broken = nodepool(requirements=[requirement("karpenter.k8s.aws/instance-family", "m99z")])
    system.apply(nodeclass(CLUSTER), broken, deployment("web", 5))
    system.until("the pods are refused", lambda: system.decided("web"))
    assert "m99z" in json.dumps(explained(system, "web")), "the reason names the requirement"

    system.apply(nodepool())

    system.until_running(5)
    system.until_settled()


def test_the_heavier_of_two_nodepools_is_preferred_and_taints_keep_strangers_out(start: Start) -> None:
    system = start()
    heavy = nodepool("heavy", weight=50)
    dedicated = nodepool("dedicated", weight=100, taints=[taint("dedicated", "yes")])
    tolerating = {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "yes"}]}
    system.apply(nodeclass(CLUSTER), nodepool("light", weight=1), heavy, dedicated)
    system.until_nodepools_ready()
    system.apply(deployment("stranger", 4), deployment("friend", 4, **tolerating))

    system.until_running(8)
    system.until_settled()

    assert pools_of(system, "stranger") == {"heavy"}
    assert pools_of(system, "friend") == {"dedicated"}


def test_limits_hold_pods_back_with_the_reason_until_they_are_raised(start: Start) -> None:
    system = start()
    limited = nodepool(limits={"cpu": "8"})
    system.apply(nodeclass(CLUSTER), limited, deployment("web", 12))
    system.until("the limit is used up", lambda: len(running(system)) >= 4 and system.decided("web"))
    system.until_settled()
    system.stays("the limit holds", lambda: cpus(system.nodes()) <= 8, seconds=5)
    told = json.dumps(explained(system, "web"))
    assert "limit" in told
    assert "default" in told
    before = len(running(system))

    system.apply(nodepool(limits={"cpu": "100"}))

    system.until_running(12)
    system.until_settled()
    assert 4 <= before <= 8


def running(system: System) -> list[Manifest]:
    return [dict(pod) for pod in system.pods("web") if pod["status"].get("phase") == "Running"]


def cpus(nodes: list[Any]) -> int:
    return sum(int(node["status"]["capacity"]["cpu"]) for node in nodes)
