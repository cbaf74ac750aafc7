"""A cluster of stand-ins with a clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith_formats.kubernetes.objects import View, dig
from nodesmith_local.apiserver import Store
from nodesmith_local.cluster import Cluster, Pace, heartbeat, register_node

NO_WAIT = Pace(start_seconds=0, run_seconds=10, stop_seconds=1)


class StandIns:
    """A store, the stand-ins and their clock, with the operations that all tests need."""

    def __init__(self, pace: Pace = NO_WAIT, **options: Any) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.store = Store(lambda: self.time)
        self.cluster = Cluster(self.store, pace=pace, **options)

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        self.cluster.settle()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and everything happen when it is due."""
        end = self.time + timedelta(seconds=seconds)
        self.settle()
        while (due := self.cluster.due()) is not None and due <= end:
            self.time = max(due, self.time)
            self.settle()
        self.time = end
        self.settle()

    def add_node(
        self,
        name: str,
        zone: str = "a",
        cpu: str = "4",
        taints: Sequence[dict[str, str]] = (),
        *,
        ready: bool = True,
        **labels: str,
    ) -> None:
        """Register a node as a kubelet does."""
        hostname = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        node: dict[str, Any] = {
            "metadata": {"name": name, "labels": {**hostname, **labels}},
            "spec": {"taints": list(taints)},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}],
            },
        }
        register_node(self.store, node)

    def beat(self, *names: str) -> None:
        """Renew the leases of nodes."""
        heartbeat(self.store, names)

    def add_pod(self, name: str, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any) -> None:
        """Create a bare pod."""
        container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
        metadata = {"name": name, "labels": labels or {"app": name}}
        self.store.create("pods", {"metadata": metadata, "spec": {"containers": [container], **spec}})

    def add_workload(self, resource: str, name: str = "web", cpu: str = "1", **spec: Any) -> None:
        """Create a workload whose pods have the label app=NAME; `pod` is merged into its pod spec."""
        container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
        pod = {"containers": [container], **spec.pop("pod", {})}
        annotations = spec.pop("annotations", {})
        template = {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": pod}
        selector = {} if resource == "jobs" else {"selector": {"matchLabels": {"app": name}}}
        self.store.create(
            resource, {"metadata": {"name": name}, "spec": {**selector, "template": template, **spec}}
        )

    def pods(self) -> list[View]:
        """Return all pods, by name."""
        return list(self.store.list("pods"))

    def pod(self, name: str) -> View:
        """Return one pod."""
        return self.store.get("pods", name, "default")

    def places(self) -> dict[str, str]:
        """Return the node of each pod; an empty string for pods without one."""
        return {each["metadata"]["name"]: dig(each, "spec", "nodeName") or "" for each in self.pods()}

    def phases(self) -> list[str]:
        """Return the pods' phases, sorted."""
        return sorted(str(dig(each, "status", "phase")) for each in self.pods())

    def why(self, name: str) -> str:
        """Return the reason why a pod has no node."""
        conditions = dig(self.pod(name), "status", "conditions") or ()
        return next(str(each["message"]) for each in conditions if each["type"] == "PodScheduled")
