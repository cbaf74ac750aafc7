"""A whole small world in memory: cluster, EC2, ledger, queues, and the functions that serve them, under one clock.

Its functions can be killed before or after any call they make, its messages lost, doubled and delayed. `settle` runs it
until nothing moves; `violations` says what was promised and did not hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from nodesmith.controllers.lifecycle import Lifecycle, follow
from nodesmith.controllers.provisioning import Provisioning, provision
from nodesmith.errors import Rejected, Transient
from nodesmith.model.capacity import NodeConfiguration, NodeSettings
from nodesmith.model.catalog import Catalog
from nodesmith.model.events import Concern
from nodesmith.model.instancetypes import instance_types
from nodesmith.model.nodeclaims import Phase
from nodesmith.model.resources import Resources, format_resources, parse_resources, total
from nodesmith.model.taints import UNREGISTERED
from nodesmith.model.times import format_time
from nodesmith.observation.podreduction import reduce_pod
from nodesmith.observation.reduction import reduce_custom, reduce_node
from nodesmith.observation.wire import Observed, encode
from nodesmith.settings import snapshot_key
from tests import builders
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cloud import FakeCloud
from tests.fakes.cluster import FakeCluster
from tests.fakes.hints import FakeHints
from tests.fakes.store import FakeStore

Manifest = dict[str, Any]
BOOT = timedelta(seconds=30)
READY = timedelta(seconds=45)
STEP = timedelta(seconds=5)
TICK = timedelta(seconds=60)


class Killed(BaseException):
    """The process is gone: nothing of ours may catch it."""


@dataclass(slots=True)
class Boundaries:
    """Counts the moments before and after each call of a port; dies at the `fatal` ones, each once."""

    fatal: frozenset[int] = frozenset()
    passed: int = 0
    calls: list[str] = field(default_factory=list)

    def cross(self, where: str) -> None:
        """Pass one moment, or die there."""
        self.passed += 1
        self.calls.append(where)
        if self.passed in self.fatal:
            raise Killed(where)


class Watched:
    """A port whose every call has a boundary before and after it."""

    def __init__(self, port: object, boundaries: Boundaries) -> None:
        self._port, self._boundaries = port, boundaries

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Give the port's method, watched."""
        method = getattr(self._port, name)
        where = f"{type(self._port).__name__}.{name}"

        def call(*args: object, **kwargs: object) -> Any:
            self._boundaries.cross(f"before {where}")
            answer = method(*args, **kwargs)
            self._boundaries.cross(f"after {where}")
            return answer

        return call


@dataclass(frozen=True, slots=True)
class Messages:
    """How the queues behave. Chances are out of one; `dice` decides."""

    lost: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    seed: int = 0


class _Shelf:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def latest(self) -> Catalog:
        return self._catalog


def pod_manifest(name: str, cpu: str = "1", memory: str = "1Gi", **spec: Any) -> Manifest:
    """Give a pending pod as the API server shows it once the scheduler has found no node."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": format_time(builders.NOW),
            "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": True}],
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
            **spec,
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }


class World:
    """One cluster and everything that serves it."""

    def __init__(
        self,
        pods: Mapping[str, Manifest],
        *,
        nodepool: Manifest | None = None,
        boundaries: Boundaries | None = None,
        messages: Messages | None = None,
    ) -> None:
        self.now = builders.NOW
        self.pods = dict(pods)
        self.nodepool = nodepool or builders.nodepool_manifest()
        self.boundaries = boundaries or Boundaries()
        self.messages = messages or Messages()
        self._dice = random.Random(self.messages.seed)
        self.store = FakeStore(
            nodeclasses={"default": builders.nodeclass_status()}, cluster=builders.cluster_info()
        )
        self.cloud = FakeCloud(clock=self.clock)
        self.cluster = FakeCluster(clock=self.clock)
        self.blobs = FakeBlobs()
        self.hints = FakeHints(clock=self.clock)
        self.runs = 0
        self._again: list[tuple[datetime, Concern]] = []

    def clock(self) -> datetime:
        """Give the world's time."""
        return self.now

    def settle(self, *, patience: timedelta = timedelta(minutes=40)) -> None:
        """Run until every pod is bound, every claim initialized or gone, and no message waits."""
        end = self.now + patience
        next_tick = self.now
        self.observe()
        while self.now < end and not self.is_settled():
            woken = self._deliver()
            if self.now >= next_tick:
                woken |= {Concern.PROVISIONING, Concern.LIFECYCLE}
                next_tick = self.now + TICK
            for concern in sorted(woken):
                self.run(concern)
            self.now += STEP
            self._boot()
            self._bind()
            self.observe()

    def is_settled(self) -> bool:
        """Tell whether there is nothing left to do."""
        bound = all(p["spec"].get("nodeName") for p in self.pods.values())
        done = all(c.phase is Phase.INITIALIZED for c in self.store.claims.values())
        return bound and done and set(self.cluster.nodeclaims) == set(self.store.claims)

    def run(self, concern: Concern) -> None:
        """Invoke a function once; what it dies of or fails with brings its message back a little later."""
        self.runs += 1
        try:
            self._invoke(concern)
        except (Killed, Transient):
            self._again.append((self.now + timedelta(seconds=20), concern))
        except Rejected as error:
            raise AssertionError(f"{concern} rejected its input: {error}") from error

    def _invoke(self, concern: Concern) -> None:
        store, cloud, cluster, blobs, hints = (
            Watched(port, self.boundaries)
            for port in (self.store, self.cloud, self.cluster, self.blobs, self.hints)
        )
        if concern is Concern.PROVISIONING:
            shelf = _Shelf(builders.catalog())
            provision(
                Provisioning(
                    builders.CLUSTER,
                    NodeSettings(),
                    store,
                    cloud,
                    blobs,
                    hints,
                    shelf,
                    self.clock,
                    lambda: 0.0,
                )
            )
        elif concern is Concern.LIFECYCLE:
            follow(Lifecycle(builders.CLUSTER, store, cloud, cluster, blobs, hints, self.clock))

    def _deliver(self) -> set[Concern]:
        """Take what the queues have, losing, doubling and delaying as told; give who is woken."""
        woken: set[Concern] = set()
        due = [concern for at, concern in self._again if at <= self.now]
        self._again = [(at, concern) for at, concern in self._again if at > self.now]
        for concern in (Concern.PROVISIONING, Concern.LIFECYCLE):
            due += [message.concern for message in self.hints.receive(concern)]
        for concern in due:
            if self._dice.random() < self.messages.lost:
                continue
            if self._dice.random() < self.messages.delayed:
                later = timedelta(seconds=self._dice.randrange(5, 120))
                self._again.append((self.now + later, concern))
                continue
            woken.add(concern)
            if self._dice.random() < self.messages.doubled:
                self.run(concern)
        return woken

    def observe(self) -> None:
        """Write the snapshot, and the hints, as the forwarder does."""
        pods = [reduced for p in self.pods.values() if (reduced := reduce_pod(p)) is not None]
        observed = Observed(
            pods=pods,
            nodes=[reduce_node(n) for n in self.cluster.nodes.values()],
            nodepools=[reduce_custom(self.nodepool)],
            nodeclasses=[reduce_custom(builders.nodeclass_manifest())],
            nodeclaims=[reduce_custom(c) for c in self.cluster.nodeclaims.values()],
        )
        data = encode(builders.CLUSTER, self.now, observed)
        if self.blobs.objects.get(snapshot_key(builders.CLUSTER)) != data:
            self.blobs.objects[snapshot_key(builders.CLUSTER)] = data
            self._again.append((self.now, Concern.LIFECYCLE))

    def _boot(self) -> None:
        """Let running instances join as Nodes, and Nodes become Ready, each after its time."""
        types = {t.name: t for t in instance_types(builders.catalog(), NodeConfiguration())}
        for instance in self.cloud.alive():
            age = self.now - instance.launched_at
            name = f"node-{instance.id}"
            if name not in self.cluster.nodes and age >= BOOT:
                offered = types[instance.instance_type].allocatable
                self.cluster.nodes[name] = _node_manifest(name, instance.provider_id, offered, self.now)
            if name in self.cluster.nodes and age >= READY:
                self.cluster.nodes[name]["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

    def _bind(self) -> None:
        """Bind pods as the scheduler would: to Nodes that are Ready, without a taint, with room."""
        for pod in self.pods.values():
            if not pod["spec"].get("nodeName"):
                found = next((n for n in self.cluster.nodes.values() if self._takes(n, pod)), None)
                if found is not None:
                    pod["spec"]["nodeName"] = found["metadata"]["name"]

    def _takes(self, node: Manifest, pod: Manifest) -> bool:
        ready = any(c["status"] == "True" for c in node["status"]["conditions"])
        if not ready or node["spec"].get("taints"):
            return False
        mine = [p for p in self.pods.values() if p["spec"].get("nodeName") == node["metadata"]["name"]]
        offered = _amounts(node["status"]["allocatable"])
        return _requests(pod).fits_in(offered - total([_requests(p) for p in mine]))

    def violations(self) -> list[str]:
        """Say what did not hold: instances nobody knows, claims with two, pods without a node."""
        alive = self.cloud.alive()
        known = {c.instance_id for c in self.store.claims.values()}
        found = [f"leaked {i.id} of {i.claim}" for i in alive if i.id not in known]
        by_claim: dict[str, int] = {}
        for instance in alive:
            by_claim[instance.claim] = by_claim.get(instance.claim, 0) + 1
        found += [f"doubled {claim}: {n} instances" for claim, n in sorted(by_claim.items()) if n > 1]
        used = {p["spec"].get("nodeName") for p in self.pods.values()}
        found += [f"idle instance {i.id}" for i in alive if f"node-{i.id}" not in used]
        found += [
            f"forgotten {name}" for name, p in sorted(self.pods.items()) if not p["spec"].get("nodeName")
        ]
        found += [
            f"claim {c.name} stays {c.phase}"
            for c in self.store.claims.values()
            if c.phase is not Phase.INITIALIZED
        ]
        return found


def _node_manifest(name: str, provider_id: str, offered: Resources, now: datetime) -> Manifest:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": format_time(now),
            "labels": {"kubernetes.io/hostname": name},
        },
        "spec": {
            "providerID": provider_id,
            "taints": [{"key": UNREGISTERED.key, "effect": str(UNREGISTERED.effect)}],
        },
        "status": {
            "capacity": format_resources(offered),
            "allocatable": format_resources(offered),
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }


def _requests(pod: Manifest) -> Resources:
    asked = pod["spec"]["containers"][0]["resources"]["requests"]
    return _amounts({**asked, "pods": "1"})


def _amounts(quantities: Mapping[str, str]) -> Resources:
    return parse_resources(quantities)
