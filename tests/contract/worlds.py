"""Implementations of the Cluster port under test: the unit tests' fake, and the adapter on an API server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.cluster import ApiCluster, is_held
from nodesmith.ports import Cluster
from tests.builders import NODECLASS_REF
from tests.clocks import StillClock
from tests.contract.servers import Server
from tests.fakes.cluster import FakeCluster
from tests.patience import eventually

EARLY = "2026-11-21T07:00:00Z"
START = datetime(2026, 11, 21, 8, tzinfo=UTC)
PLURALS = {
    "Node": "nodes",
    "NodePool": "nodepools",
    "NodeClaim": "nodeclaims",
    "EC2NodeClass": "ec2nodeclasses",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
}
PATHS = {
    "Node": "/api/v1/nodes",
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "Pod": "/api/v1/namespaces/default/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
MERGE = "application/merge-patch+json"
REF = NODECLASS_REF


class World(Protocol):
    """A cluster, with direct access to its objects that bypasses the Cluster port."""

    cluster: Cluster
    clock: StillClock

    def put(self, kind: str, manifest: dict[str, Any]) -> None: ...
    def find(self, kind: str, name: str) -> Mapping[str, Any] | None: ...
    def events(self) -> list[tuple[str, str, str, str, bool]]: ...
    def delete(self, kind: str, name: str) -> None: ...
    def renew_karpenters_lease(self, ago: timedelta) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self.clock = StillClock(START)
        self.fake = FakeCluster(clock=self.clock)
        self.cluster: Cluster = self.fake

    def _objects(self, kind: str) -> dict[str, dict[str, Any]]:
        held: dict[str, dict[str, Any]] = getattr(self.fake, PLURALS[kind].replace("ec2", ""))
        return held

    def put(self, kind: str, manifest: dict[str, Any]) -> None:
        self._objects(kind)[_key(kind, manifest["metadata"]["name"])] = manifest

    def find(self, kind: str, name: str) -> Mapping[str, Any] | None:
        return self._objects(kind).get(_key(kind, name))

    def events(self) -> list[tuple[str, str, str, str, bool]]:
        return [(e.kind, e.name, e.reason, e.message, e.warning) for e in self.fake.events]

    def delete(self, kind: str, name: str) -> None:
        self.fake.delete(kind, name)

    def renew_karpenters_lease(self, ago: timedelta) -> None:
        self.fake.karpenter = is_held(lease(self.clock.time - ago), self.clock.time)


def lease(renewed: datetime) -> dict[str, Any]:
    """Return the leader election lease of Karpenter's controllers, renewed at this time."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "karpenter-leader-election", "namespace": "default"},
        "spec": {
            "holderIdentity": "karpenter-1_a",
            "leaseDurationSeconds": 15,
            "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}",
        },
    }


def _key(kind: str, name: str) -> str:
    return f"default/{name}" if kind in ("Pod", "PodDisruptionBudget") else name


class ServedWorld:
    """A cluster behind an API server, with direct access through plain requests."""

    def __init__(self, server: Server, clock: StillClock) -> None:
        self.clock = clock
        self._call = server.call
        token = server.token
        self.cluster: Cluster = ApiCluster(
            ApiServer(connect(server.url, server.ca_bundle, lambda: token)), clock
        )

    def put(self, kind: str, manifest: dict[str, Any]) -> None:
        assert self._call("POST", PATHS[kind], manifest)[0] == 201
        if "status" in manifest:
            path, status = (
                f"{PATHS[kind]}/{manifest['metadata']['name']}/status",
                {"status": manifest["status"]},
            )
            assert self._call("PATCH", path, status, MERGE)[0] == 200

    def find(self, kind: str, name: str) -> Mapping[str, Any] | None:
        code, found = self._call("GET", f"{PATHS[kind]}/{name}")
        return found if code == 200 else None

    def events(self) -> list[tuple[str, str, str, str, bool]]:
        _, found = self._call("GET", "/api/v1/events")
        return [
            (
                event["involvedObject"]["kind"],
                "/".join(filter(None, map(event["involvedObject"].get, ("namespace", "name")))),
                event["reason"],
                event["message"],
                event["type"] == "Warning",
            )
            for event in found["items"]
        ]

    def delete(self, kind: str, name: str) -> None:
        assert self._call("DELETE", f"{PATHS[kind]}/{name}")[0] == 200

    def renew_karpenters_lease(self, ago: timedelta) -> None:
        self._call("DELETE", f"{LEASES}/karpenter-leader-election")
        assert self._call("POST", LEASES, lease(self.clock.time - ago))[0] == 201

    def clear(self) -> None:
        """Delete all objects that tests have created."""
        self._call("DELETE", LEASES)
        for path in PATHS.values():
            for each in self._listed(path):
                name = each["metadata"]["name"]
                self._call("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)
                self._call("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
        self._call("DELETE", "/api/v1/namespaces/default/events")

    def _listed(self, path: str) -> list[dict[str, Any]]:
        """Return a path's objects. A server that has just learned of a kind may return 429 at first."""
        answers: list[tuple[int, Any]] = []

        def is_listed() -> bool:
            answers.append(self._call("GET", path))
            return answers[-1][0] == 200

        eventually(is_listed, f"{path} is listed")
        found: list[dict[str, Any]] = answers[-1][1]["items"]
        return found


def there(world: World, kind: str, name: str) -> Mapping[str, Any]:
    found = world.find(kind, name)
    assert found is not None
    return found


def a_claim(**status: Any) -> dict[str, Any]:
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": "default-abc",
            "labels": {"karpenter.sh/nodepool": "default"},
            "annotations": {"karpenter.sh/nodepool-hash": "1"},
            "finalizers": ["karpenter.sh/termination"],
        },
        "spec": {"nodeClassRef": REF, "requirements": [requirement], "expireAfter": "720h"},
        **({"status": status} if status else {}),
    }


def a_node(name: str = "n1", *taints: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}, "creationTimestamp": EARLY},
        "spec": {"taints": list(taints)} if taints else {},
    }


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "app:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "schedulerName": "nobody", **spec},
    }
