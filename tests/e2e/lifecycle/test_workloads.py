"""DaemonSets and priorities: pods for which no nodes are bought, but which affect the nodes that are bought."""

from __future__ import annotations

from nodesmith.model.apimachinery.quantities import parse_resources, total
from nodesmith_local.aws.instances.stages import USUAL
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System
from tests.objects.manifests import daemonset, deployment, nodeclass, nodepool, pod, requirement

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge")  # 4 vCPUs, 3.92 of them allocatable


def daemons_on(system: System, node: Manifest) -> set[str]:
    """Return the DaemonSets that have a running pod on a node."""
    return {
        each["metadata"]["labels"]["app"]
        for each in system.pods()
        if each["spec"].get("nodeName") == node["metadata"]["name"]
        and each["status"].get("phase") == "Running"
        and each["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    }


def test_nodes_have_room_for_daemonsets_and_a_later_daemonset_buys_none(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]), daemonset("agent", "900m"))
    system.until_nodepools_ready()
    system.apply(deployment("web", 6))
    system.until_running(6, "web")
    system.until_settled()
    nodes = system.nodes()
    assert len(nodes) == 2, "a node holds three pods of 1 cpu beside the agent's 0.9"
    system.until(
        "the agent runs on every node", lambda: all(daemons_on(system, n) == {"agent"} for n in nodes)
    )

    system.apply(daemonset("late", "500m"), daemonset("small", "10m"))
    system.until(
        "the small one runs", lambda: all(daemons_on(system, n) >= {"agent", "small"} for n in nodes)
    )
    system.stays("the fleet is unchanged", lambda: len(system.instances()) == 2, seconds=5)
    assert "late" not in daemons_on(system, nodes[0]) | daemons_on(system, nodes[1])

    system.apply(deployment("more", 3, "800m"))
    system.until_running(3, "more")
    system.until_settled()
    known = {node["metadata"]["name"] for node in nodes}
    new = [node for node in system.nodes() if node["metadata"]["name"] not in known]
    everything = {"agent", "late", "small"}
    system.until("all daemons run there", lambda: all(daemons_on(system, node) == everything for node in new))
    for node in new:
        assert_not_overfull(system, node)


def test_a_preempting_pod_does_not_get_a_second_node(start: Start) -> None:
    system = start(speed=HURRIED, delays=USUAL)
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]), {**high, "value": 1000})
    system.until_nodepools_ready()
    system.apply(*(pod(f"low-{number}", "1200m") for number in range(3)))
    system.until_running(3)
    system.until_settled()
    assert len(system.instances()) == 1

    system.apply(pod("high", "1", priorityClassName="high"))
    system.until("the high one runs", lambda: "high" in running(system), seconds=30)
    system.stays("one instance, for two clock minutes", lambda: len(system.instances()) == 1, seconds=12)
    assert len(running(system)) == 3
    assert len({each["spec"]["nodeName"] for each in system.pods()}) == 1


def test_a_node_has_room_for_a_daemonset_that_a_limit_range_makes_large(
    start: Start, figures: Figures
) -> None:
    system = start(speed=HURRIED, delays=USUAL)
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": "default"},
    }
    large = {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}
    sizes = requirement("node.kubernetes.io/instance-type", "c6a.large", "c6a.xlarge")
    system.apply(
        {**high, "value": 1000}, {**limits, "spec": large}, nodeclass(CLUSTER), nodepool(requirements=[sizes])
    )
    silent = [{"name": "main", "image": "busybox"}]
    system.apply(daemonset("agent", containers=silent, priorityClassName="high"))
    system.until_nodepools_ready()
    system.apply(deployment("web", 1))
    system.until_running(1, "web")
    (web,) = system.pods("web")
    system.until("the agent runs beside it", lambda: daemons_on(system, system.node_of(web)) == {"agent"})
    (machine,) = system.instances()

    def undisturbed() -> bool:
        return [i["InstanceId"] for i in system.instances()] == [machine["InstanceId"]]

    system.stays("the only node, for two clock minutes", undisturbed, seconds=12)
    figures("churn-nodes", len(system.instances()) - 1)
    system.until_running(1, "web")


def running(system: System) -> set[str]:
    return {each["metadata"]["name"] for each in system.pods() if each["status"].get("phase") == "Running"}


def assert_not_overfull(system: System, node: Manifest) -> None:
    asked = [
        parse_resources(container["resources"]["requests"])
        for each in system.pods()
        if each["spec"].get("nodeName") == node["metadata"]["name"]
        for container in each["spec"]["containers"]
    ]
    offered = parse_resources(node["status"]["allocatable"])
    assert all(amount <= offered[resource] for resource, amount in total(asked).items())
