"""A local system with something to see: several pools and workloads, pools without capacity, and interruptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, NODEPOOL, SPOT
from nodesmith.model.ec2.notices import WARNING
from nodesmith_cli.simulator.localcommands.commands import place_of
from nodesmith_cli.simulator.localcommands.kubeconfigs import kubeconfig_at
from nodesmith_cli.simulator.localcommands.upcommand import access
from nodesmith_cli.views.ui.running import UiRequest, serving
from nodesmith_formats.manifests.manifests import Document, Manifests
from nodesmith_local.aws.instances.eventbus import announce_interruption
from nodesmith_local.runs.running import apply, with_defaults
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.system import LocalSystem
from tests.objects.manifests import budget, requirement, zone_spread
from tests.patience import eventually, hurried

NO_CAPACITY = ("spot:c6g.*", "spot:m6g.xlarge:us-east-1a", "spot:c7g.2xlarge:us-east-1b")
SPEED = 10.0
_READY_SECONDS = 180.0
"""A workload for which nodes were bought in vain twice waits for ten minutes, which take one minute at this speed."""
_NEVER = "default/reports-"
"""What the names of pods begin with that ask for a label that no NodePool has."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The system, and the link to its page. `links` gets the links that come after."""

    system: LocalSystem
    kubeconfig: Path
    link: str
    links: list[str]

    @property
    def cluster(self) -> ServedCluster:
        return self.system.first

    def spot_nodes(self) -> list[str]:
        """Return the names of spot nodes of the NodePool `general`."""
        return sorted(self._nodes({CAPACITY_TYPE: SPOT, NODEPOOL: "general"}))

    def lasting_node(self) -> str:
        """Return the name of a node that nothing removes: one with GPUs."""
        return min(self._nodes({NODEPOOL: "gpu"}))

    def _nodes(self, wanted: Mapping[str, str]) -> list[str]:
        found = self.cluster.objects.list("nodes")
        return [
            str(node["metadata"]["name"])
            for node in found
            if wanted.items() <= node["metadata"]["labels"].items()
        ]

    def interrupt(self, node: str, within: timedelta = WARNING) -> None:
        """Have EC2 announce that it takes a node's instance."""
        found = self.cluster.objects.get("nodes", node)
        instance = str(found["spec"]["providerID"]).rpartition("/")[2]
        aws, now = self.system.aws, self.system.clock.now()
        announce_interruption(aws.client("events"), aws.region, instance, now + within - WARNING)

    def scale(self, deployment: str, replicas: int) -> None:
        """Change the size of a Deployment."""
        self.cluster.objects.patch("deployments", deployment, {"spec": {"replicas": replicas}}, "default")


@contextmanager
def playing(state: Path, manifests: Sequence[Mapping[str, Any]], *, speed: float = SPEED) -> Iterator[Scene]:
    """Yield a scene in which all manifests were applied and have settled."""
    documents = tuple(Document(each, "scene", number) for number, each in enumerate(manifests, start=1))
    found = with_defaults(Manifests(documents))
    links: list[str] = []
    place = place_of(found, "us-east-1", hurried(speed), NO_CAPACITY)
    with (
        LocalSystem(place, state) as system,
        kubeconfig_at(state / "kubeconfig", access(system)) as kubeconfig,
    ):
        faults = apply(system.first, found.documents)
        assert not faults, faults
        eventually(lambda: is_ready(system.first), "pods have nodes", _READY_SECONDS)
        wanted = UiRequest(kubeconfig=str(kubeconfig))
        with serving(wanted, system.clock.now, links.append) as link:
            yield Scene(system, kubeconfig, link, links)


def deployment(name: str, replicas: int, cpu: str, memory: str, **spec: Any) -> dict[str, Any]:
    """Return a Deployment. `spec` are further fields of its pods."""
    labels = {"app": name}
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    extra = spec.pop("limits", None)
    if extra:
        resources["limits"] = extra
    container = {"name": "main", "image": "app", "resources": resources}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}},
        },
    }


def nodepool(name: str, *requirements: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a NodePool. `spec` are further fields of its template."""
    nodeclass = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"nodeClassRef": nodeclass, "requirements": list(requirements), **spec}
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    office_hours = {"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h", "reasons": ["Drifted"]}
    budgets = [{"nodes": "30%"}, office_hours]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}, "disruption": {**disruption, "budgets": budgets}},
    }


def pictured() -> list[dict[str, Any]]:
    """Return the manifests of the pictures in the documentation."""
    category = requirement("karpenter.k8s.aws/instance-category", "c", "m", "r")
    generation = {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gte", "values": ["5"]}
    on_demand = {"nodeSelector": {CAPACITY_TYPE: "on-demand"}}

    return [
        nodepool("general", category, generation, requirement(CAPACITY_TYPE, "spot", "on-demand")),
        nodepool(
            "gpu",
            requirement("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia"),
            requirement(CAPACITY_TYPE, "spot", "on-demand"),
            taints=[{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
        ),
        deployment("web", 36, "500m", "1Gi", topologySpreadConstraints=zone_spread("web")),
        deployment("api", 20, "1", "2Gi", topologySpreadConstraints=zone_spread("api")),
        deployment("cache", 6, "2", "15Gi", topologySpreadConstraints=zone_spread("cache")),
        deployment("search", 4, "7", "12Gi"),
        deployment(
            "payments", 9, "900m", "3Gi", topologySpreadConstraints=zone_spread("payments"), **on_demand
        ),
        deployment(
            "training",
            2,
            "3",
            "12Gi",
            limits={"nvidia.com/gpu": "1"},
            tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        ),
        deployment("reports", 2, "1", "2Gi", nodeSelector={"team": "analytics"}),
        budget("cache", maxUnavailable=1),
    ]


def is_ready(cluster: ServedCluster) -> bool:
    """Return whether every pod has a node, except those that no node may have."""
    report = cluster.report()
    return bool(report.nodes) and all(pod.name.startswith(_NEVER) for pod in report.pending)
