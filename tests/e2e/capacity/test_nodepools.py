"""NodePools that are late, invalid, weighted or at their limits: which nodes pods get, and what users see.

The tests share a cluster. Each test's pods select nodes of its own NodePools.
"""

from __future__ import annotations

from typing import Any

from nodesmith.model.apimachinery.labels import NODEPOOL
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import Manifest, deployment, nodeclass, nodepool, requirement, taint


def pools_of(system: System, app: str) -> set[str]:
    """Return the NodePools of the nodes that an app's pods run on; one is empty while a pod has no node."""
    return set(system.labels_of_nodes(app, NODEPOOL))


def explained(system: System, app: str) -> str:
    """Return what `nodesmith explain pod` prints about the first pod of an app that has no node."""
    waiting = next((p["metadata"]["name"] for p in system.pods(app) if not p["spec"].get("nodeName")), None)
    if waiting is None:  # its Deployment has only just been applied
        return ""
    return system.nodesmith("explain", "pod", f"default/{waiting}").stdout


def test_a_nodepool_created_after_the_pods_serves_them(shared: System) -> None:
    system, late = shared, {"team": "late"}
    before = ids(system)
    system.apply(deployment("late", 5, nodeSelector=late))
    system.until("a decision has considered the pods", lambda: system.decided("late"))
    assert ids(system) <= before

    system.apply(nodeclass(CLUSTER), nodepool("late", labels=late))

    system.until_running(5, "late")
    system.until_settled()
    assert pools_of(system, "late") == {"late"}


def test_a_broken_nodepool_serves_pods_once_it_is_fixed(shared: System) -> None:
    system, broken = shared, {"team": "broken"}
    nowhere = requirement("karpenter.k8s.aws/instance-family", "m99z")
    system.apply(
        nodeclass(CLUSTER),
        nodepool("broken", labels=broken, requirements=[nowhere]),
        deployment("broken", 5, nodeSelector=broken),
    )
    system.until(
        "`explain pod` names the requirement that prevents a node",
        lambda: "m99z" in explained(system, "broken"),
    )

    system.apply(nodepool("broken", labels=broken))

    system.until_running(5, "broken")
    system.until_settled()


def test_the_nodepool_with_the_higher_weight_is_used_and_taints_keep_other_pods_out(shared: System) -> None:
    system, weighed = shared, {"team": "weighed"}
    light = nodepool("light", labels=weighed, weight=1)
    heavy = nodepool("heavy", labels=weighed, weight=50)
    dedicated = nodepool("dedicated", labels=weighed, weight=100, taints=[taint("dedicated", "yes")])
    tolerations = [{"key": "dedicated", "operator": "Equal", "value": "yes"}]
    system.apply(nodeclass(CLUSTER), light, heavy, dedicated)
    system.until_nodepools_ready()
    system.apply(deployment("friend", 4, nodeSelector=weighed, tolerations=tolerations))
    # Pods that arrive later could fill room left on a node for strangers.
    system.until(
        "a decision has considered the friends",
        lambda: len(system.pods("friend")) == 4 and system.decided("friend"),
    )
    system.apply(deployment("stranger", 4, nodeSelector=weighed))

    system.until_running(4, "friend")
    system.until_running(4, "stranger")
    system.until_settled()

    assert pools_of(system, "stranger") == {"heavy"}
    assert pools_of(system, "friend") == {"dedicated"}


def test_pods_beyond_the_limits_wait_with_a_reason_until_the_limits_are_raised(shared: System) -> None:
    system, limited = shared, {"team": "limited"}
    system.apply(
        nodeclass(CLUSTER),
        nodepool("limited", labels=limited, limits={"cpu": "8"}),
        deployment("limited", 12, nodeSelector=limited),
    )
    system.until("`explain pod` names the limit", lambda: "spec.limits.cpu" in explained(system, "limited"))
    system.until_settled()
    system.until(
        "`explain pod` names it and its NodePool still",
        lambda: (
            "spec.limits.cpu" in (reported := explained(system, "limited")) and "NodePool limited" in reported
        ),
    )
    system.until("kubectl describe names it too", lambda: "spec.limits.cpu" in described(system))
    system.stays(
        "the limit holds",
        lambda: cpus(nodes_of(system, "limited")) <= 8 and len(running(system)) < 12,
        seconds=5,
    )

    system.apply(nodepool("limited", labels=limited, limits={"cpu": "100"}))

    system.until_running(12, "limited")
    system.until_settled()


def ids(system: System) -> set[str]:
    """Return the IDs of the instances that EC2 runs."""
    return {instance["InstanceId"] for instance in system.instances()}


def nodes_of(system: System, pool: str) -> list[Manifest]:
    """Return the nodes of a NodePool."""
    return [dict(node) for node in system.nodes() if node["metadata"]["labels"][NODEPOOL] == pool]


def described(system: System) -> str:
    """Describe one waiting pod with kubectl, which omits Events if it describes several pods at once."""
    waiting = [p["metadata"]["name"] for p in system.pods("limited") if p["status"].get("phase") != "Running"]
    return system.kubectl("describe", "pod", waiting[0])


def running(system: System) -> list[Manifest]:
    return [dict(pod) for pod in system.pods("limited") if pod["status"].get("phase") == "Running"]


def cpus(nodes: list[Any]) -> int:
    return sum(int(node["status"]["capacity"]["cpu"]) for node in nodes)
