"""A new node has room for the DaemonSets' actual requests, so no node is bought or ended afterwards.

In each scenario the DaemonSet's pod has a higher priority than the workload's. On a node that is too small, it would
preempt the workload's pod, and another node would be bought.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from nodesmith_local.aws.instances.stages import USUAL
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System
from tests.objects.manifests import daemonset, deployment, mutations, nodeclass, nodepool, pod, requirement

MINUTES = float(os.environ.get("CHURN_MINUTES", "2"))
"""Minutes of the clock for which no node may be bought or ended."""
LARGE = "1200m"
"""Beside a workload's pod of 1 cpu, too large for the smaller type, which has 1.93 cpu allocatable."""
SIZES = requirement("node.kubernetes.io/instance-type", "c6a.large", "c6a.xlarge")
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
SILENT = [{"name": "main", "image": "busybox"}]


def agent(**spec: Any) -> Manifest:
    return daemonset("agent", priorityClassName="high", **spec)


def limit_range(**sizes: str) -> Manifest:
    """Return a LimitRange with these default amounts of cpu for containers."""
    limits = [{"type": "Container", **{name: {"cpu": cpu} for name, cpu in sizes.items()}}]
    names = {"name": "limits", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": names, "spec": {"limits": limits}}


def enlarging() -> Sequence[Manifest]:
    """Return an admission policy that makes the agent's new pods request more than their template says."""
    path = "/spec/containers/0/resources/requests/cpu"
    patch = f'[JSONPatch{{op: "add", path: "{path}", value: "{LARGE}"}}]'
    pods = {"operations": ["CREATE"], "resources": ["pods"]}
    return mutations("enlarge", patch, pods, objectSelector={"matchLabels": {"app": "agent"}})


def cpu_of(made: Manifest) -> str:
    requests: Mapping[str, str] = made["spec"]["containers"][0]["resources"]["requests"]
    return requests["cpu"]


def running(system: System, app: str) -> list[Manifest]:
    return [each for each in system.pods(app) if each["status"].get("phase") == "Running"]


def by_a_default_limit(system: System) -> None:
    system.apply(limit_range(default=LARGE))
    system.apply(agent(containers=SILENT))


def by_a_default_request(system: System) -> None:
    system.apply(limit_range(defaultRequest=LARGE))
    system.apply(agent(containers=SILENT))


def by_admission(system: System) -> None:
    """Enlarge pods on admission; the only pod to learn from is the one on the managed node."""
    enlarge(system)
    system.apply(agent())
    system.until("a larger pod runs", lambda: [cpu_of(p) for p in running(system, "agent")] == [LARGE])


def enlarge(system: System) -> None:
    """Have the agent's new pods enlarged on admission."""
    system.apply(*enlarging())
    probe = json.dumps(pod("probe", labels={"app": "agent"}))

    def is_in_force() -> bool:
        tried = system.plane.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=probe)
        return tried.returncode == 0 and cpu_of(json.loads(tried.stdout)) == LARGE

    system.until("the policy is in force", is_in_force)


def by_resizing_in_place(system: System) -> None:
    """Do as the vertical pod autoscaler does: resize the running pod, and enlarge later ones on admission."""
    system.apply(agent())
    system.until("a pod runs", lambda: len(running(system, "agent")) == 1)
    (there,) = running(system, "agent")
    assert cpu_of(there) == "100m"
    name = there["metadata"]["name"]
    # A kubelet that can resize reports what containers have. kwok does not, and the API server would refuse.
    has = [
        {"op": "add", "path": "/status/containerStatuses/0/resources", "value": {"requests": {"cpu": "100m"}}}
    ]
    system.kubectl("patch", "pod", name, "--subresource=status", "--type=json", "--patch", json.dumps(has))
    larger = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": LARGE}}}]}}
    system.kubectl("patch", "pod", name, "--subresource=resize", "--patch", json.dumps(larger))
    enlarge(system)


def by_its_template(system: System) -> None:
    """Put the large request in the template; the pod's priority alone could preempt the workload's pod."""
    system.apply(agent(cpu=LARGE))


@pytest.mark.parametrize(
    "sized",
    [by_a_default_limit, by_a_default_request, by_admission, by_resizing_in_place, by_its_template],
)
def test_a_node_has_room_for_a_daemonset_whose_pods_are_resized(
    start: Start, figures: Figures, sized: Callable[[System], None]
) -> None:
    system = start(speed=HURRIED, delays=USUAL)
    system.apply(HIGH, nodeclass(CLUSTER), nodepool(requirements=[SIZES]))
    sized(system)
    system.until_nodepools_ready()
    system.apply(deployment("web", 1))
    assert_one_node_stays(system, figures, {"agent"})
    (node,) = system.nodes()
    (beside,) = (p for p in running(system, "agent") if p["spec"]["nodeName"] == node["metadata"]["name"])
    assert cpu_of(beside) == LARGE


def test_host_ports_of_daemonsets_for_another_architecture_are_free(start: Start, figures: Figures) -> None:
    system = start(speed=HURRIED, delays=USUAL)
    both = requirement("kubernetes.io/arch", "amd64", "arm64")
    types = requirement("node.kubernetes.io/instance-type", "c6a.large", "c6g.large")
    system.apply(HIGH, nodeclass(CLUSTER), nodepool(requirements=[both, types]))
    system.apply(exporter("amd64", 9100), exporter("arm64", 9100, 9200))
    system.until_nodepools_ready()
    system.apply(deployment("web", 1, containers=[listening(9200)]))
    assert_one_node_stays(system, figures, {"exporter-amd64"})
    (node,) = system.nodes()
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "amd64"


def exporter(arch: str, *ports: int) -> Manifest:
    """Return a DaemonSet for nodes of one architecture, as for exporters with single-architecture images."""
    return daemonset(
        f"exporter-{arch}",
        containers=[listening(*ports, cpu="100m")],
        nodeSelector={"kubernetes.io/arch": arch},
        priorityClassName="high",
    )


def listening(*ports: int, cpu: str = "1") -> Manifest:
    """Return a container that uses host ports."""
    opened = [{"containerPort": port, "hostPort": port} for port in ports]
    return {**SILENT[0], "ports": opened, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}


def assert_one_node_stays(system: System, figures: Figures, daemons: set[str]) -> None:
    """Wait for the workload's pod and the daemons beside it, then check that no node comes or goes."""
    system.until_running(1, "web")
    system.until_settled()

    def beside() -> set[str]:
        (web,) = system.pods("web")
        there = (p for p in system.pods() if p["spec"].get("nodeName") == web["spec"].get("nodeName"))
        apps = {p["metadata"]["labels"]["app"] for p in there if p["status"].get("phase") == "Running"}
        return apps - {"web"}

    system.until("the daemons run beside it", lambda: beside() == daemons)
    assert len(system.launched_at()) == 1
    (web,) = system.pods("web")
    uid = web["metadata"]["uid"]

    def churned() -> int:
        """Return how many nodes beyond the first have been bought, plus how many nodes have ended."""
        bought = len(system.launched_at())
        return bought - 1 + bought - len(system.instances())

    def is_undisturbed() -> bool:
        return churned() == 0 and [p["metadata"]["uid"] for p in running(system, "web")] == [uid]

    system.stays(
        f"the one node, for {MINUTES:g} minutes of the clock", is_undisturbed, 60 * MINUTES / HURRIED
    )
    figures("churn-nodes", churned())
