"""A drain of 50 nodes with 1,000 pods under budgets of 90 %, simulated in memory at twice real time.

Termination runs as on Lambda, two processes at a time with their threads, and the forwarder's own code batches changes.
The API server, its controllers, queues and EC2 are simulated with their durations. An eviction whose budget changes
between its read and its write sleeps as kube-apiserver does (EvictionsRetry).
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Method
from nodesmith.adapters.kubernetes.evictions import evict
from nodesmith.composition.runtime import NODES_AT_ONCE
from nodesmith.controllers.termination import Termination, end_nodes
from nodesmith.errors import Transient
from nodesmith.model.apimachinery.labels import TERMINATION_FINALIZER
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.nodeclaimobjects import manifest, marks_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.evictions import Eviction, PodOnNode
from nodesmith.observation.mirror import BUDGETS, NODECLAIMS, NODES, PODS, WATCHED
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_forwarder.forwarder import Forwarder
from tests import builders
from tests.benchmarks.figures import Figure
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cloud import Call, FakeCloud
from tests.fakes.cluster import FakeCluster
from tests.fakes.heartbeats import FakeHeartbeats
from tests.fakes.hints import FakeHints, Message
from tests.fakes.store import FakeStore
from tests.smallworld.world import node_manifest, pod_manifest

Manifest = dict[str, Any]
NODES_ENDING, APPS, PODS_A_NODE, SPEED = 50, 20, 20, 2.0
START_SECONDS, STOP_SECONDS, BIND_SECONDS = 8.0, 5.0, 0.4
BOUGHT_SECONDS = 6.0
"""From provisioning's wake-up until new nodes accept pods."""
COUNT_SECONDS, CALL_SECONDS, BETWEEN_SECONDS = 0.03, 0.01, 0.03
"""Until a budget's controller counts a change; one call; between an eviction's read and its write."""
RETRY_SECONDS, RETRIES = 0.5, 20
DENIED_SECONDS = 3.0
"""How long evictions of pods whose name ends in 7 are denied."""
PODS_AN_APP = NODES_ENDING * PODS_A_NODE // APPS
ALLOWED = PODS_AN_APP // 10
BOUND_SECONDS = 10 * (BIND_SECONDS + START_SECONDS)
LONGEST_SECONDS = 250


def figures() -> list[Figure]:
    """Measure one drain."""
    story = Drain()
    seconds = story.measured()
    seen = story.seen
    asked = sum(seen[what] for what in ("evicted", "refused", "denied", "repeated"))
    ms = 1000 * story.processor_seconds / max(1, seen["looks"])
    note = (
        f"{seconds:.1f} s, bound {BOUND_SECONDS:.1f} s; {seen['looks']} runs of {ms:.0f} ms processor time (without "
        f"their calls' threads) and {seen['turned away']} turned away; "
        f"{asked} pod evictions requested: {seen['evicted']} evicted, {seen['repeated']} already leaving, "
        f"{seen['refused']} refused; {seen['slept']} sleeps of {RETRY_SECONDS} s, {seen['calls']} other calls"
    )
    return [
        Figure("drain-told-ratio", seconds / BOUND_SECONDS, "", 1.3, note),
        Figure("drain-told-violations", len(story.violations), "", 0),
        Figure("drain-told-evictions-asked", asked / (NODES_ENDING * PODS_A_NODE), "a pod", 1.5),
    ]


@dataclass(slots=True)
class Budget:
    """A PodDisruptionBudget as stored in etcd."""

    name: str
    allowed: int = ALLOWED
    version: int = 1
    ready: int = 0
    is_due: bool = False


class Drain:
    """All parts of the simulation: the control plane, the forwarder, termination and EC2."""

    def __init__(self) -> None:
        self.clock = LocalClock(SPEED)
        self.seen: Counter[str] = Counter()
        self.processor_seconds = 0.0
        self.violations: list[str] = []
        self._lock, self._receiving, self._stop = threading.RLock(), threading.Lock(), threading.Event()
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        self._numbers = count()
        self._dice = Random(1)  # noqa: S311
        self._bought_at: datetime | None = None
        self._began = self.clock.now()
        self.budgets: dict[str, Budget] = {}
        self._store = FakeStore(raise_before=lambda _: self._call())
        self._hints = Queues(self.clock.now)
        self._cloud = FakeCloud(clock=self.clock.now, cluster=builders.cluster_info())
        self._cloud.raise_before, self._cloud.raise_after = lambda _: self._call(), self._shut_down
        self.cluster = Cluster(self)
        self._blobs = FakeBlobs()
        server = ApiServer(None)  # type: ignore[arg-type]
        self._forwarder = Forwarder(
            builders.CLUSTER, server, self._blobs, self._hints, FakeHeartbeats(), self.clock
        )
        self._world = self._forwarder._world
        self._furnish()

    def measured(self) -> float:
        """Delete all nodes, and return the seconds until the last is gone."""
        threads = [threading.Thread(target=job) for job in (self._live, self._forward, *[self._serve] * 2)]
        for thread in threads:
            thread.start()
        self._began = self.clock.now()
        for name in list(self.cluster.nodes):
            self.cluster.delete("Node", name)
            self.show(name)
        while self.cluster.nodes and self._age() < LONGEST_SECONDS:
            time.sleep(0.02)
        seconds = self._age()
        self._stop.set()
        for thread in threads:
            thread.join()
        return seconds

    def _age(self) -> float:
        return (self.clock.now() - self._began).total_seconds()

    def _furnish(self) -> None:
        for kind in WATCHED:
            self._world.mark(kind, current=True)
        for number in range(NODES_ENDING):
            claim = _claim(number, self.clock.now())
            self._store.claims[claim.name] = claim
            self.cluster.nodes[claim.node_name] = _node(claim)
            self.cluster.nodeclaims[claim.name] = manifest(claim)
            self._cloud.instances[claim.instance_id] = _instance(claim)
            self.show(claim.node_name, claim.name)
            for app in range(PODS_A_NODE):
                budget = self.budgets.setdefault(f"app-{app:02}", Budget(f"app-{app:02}"))
                budget.ready += 1
                self._put(_pod(budget.name, next(self._numbers), claim.node_name, ready=True))
        for budget in self.budgets.values():
            self._world.put(BUDGETS, [_budget(budget)])

    # Kubernetes

    def evict(self, key: str) -> tuple[int, Manifest]:
        """Answer an eviction as kube-apiserver does, with its delays."""
        self._call("evictions")
        pod = self.cluster.pods[key]
        budget = self.budgets[pod["metadata"]["labels"]["app"]]
        if key.endswith("7") and self._age() < DENIED_SECONDS:
            self.seen["denied"] += 1
            return 422, {"message": "ValidatingAdmissionPolicy 'stubborn' denied request: not now"}
        for _ in range(RETRIES):
            with self._lock:
                version, allowed = budget.version, budget.allowed
            if allowed <= 0:
                self.seen["refused"] += 1
                return 429, {"details": {"causes": [{"reason": "DisruptionBudget", "message": "none"}]}}
            self.clock.sleep(BETWEEN_SECONDS)
            with self._lock:
                if budget.version == version:
                    budget.version, budget.allowed = version + 1, allowed - 1
                    self._end(key, budget)
                    return 201, {}
            self.seen["slept"] += 1
            self.clock.sleep(RETRY_SECONDS * (1 + 0.1 * self._dice.random()))
        return 504, {"message": "couldn't update PodDisruptionBudget due to conflicts"}

    def _end(self, key: str, budget: Budget) -> None:
        pod = self.cluster.pods.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            self.seen["twice"] += 1
            return
        self.seen["evicted"] += 1
        budget.ready -= 1
        if budget.ready < PODS_AN_APP - ALLOWED:
            self.violations.append(key)
        end = format_time(self.clock.now() + timedelta(seconds=30))
        self._put(
            {
                **pod,
                "metadata": {**pod["metadata"], "deletionTimestamp": end, "deletionGracePeriodSeconds": 30},
            }
        )
        self._after(STOP_SECONDS, lambda: self._drop(key))
        self._after(BIND_SECONDS, lambda: self._bind(budget))
        self._count(budget)

    def _bind(self, budget: Budget) -> None:
        now = self.clock.now()
        wait = (self._bought_at - now).total_seconds() if self._bought_at else 1.0
        if wait > 0:
            self._after(wait, lambda: self._bind(budget))
            return
        number = next(self._numbers)
        self._put(_pod(budget.name, number, "new", ready=False))
        self._after(START_SECONDS, lambda: self._start(budget, number))

    def _start(self, budget: Budget, number: int) -> None:
        budget.ready += 1
        self._put(_pod(budget.name, number, "new", ready=True))
        self._count(budget)

    def _count(self, budget: Budget) -> None:
        """Have the disruption controller count a change."""
        if not budget.is_due:
            budget.is_due = True
            self._after(COUNT_SECONDS, lambda: self._counted(budget))

    def _counted(self, budget: Budget) -> None:
        allowed = max(0, budget.ready - (PODS_AN_APP - ALLOWED))
        budget.is_due, budget.version, budget.allowed = False, budget.version + 1, allowed
        self._world.put(BUDGETS, [_budget(budget)])

    def _put(self, pod: Manifest) -> None:
        self.cluster.pods[f"default/{pod['metadata']['name']}"] = pod
        self._world.put(PODS, [pod])

    def _drop(self, key: str) -> None:
        self._world.drop(PODS, self.cluster.pods.pop(key))

    def show(self, *names: str) -> None:
        """Show the forwarder Nodes and NodeClaims as they are now."""
        for kind, there in ((NODES, self.cluster.nodes), (NODECLAIMS, self.cluster.nodeclaims)):
            for name in names:
                if name in there:
                    self._world.put(kind, [there[name]])
                else:
                    self._world.drop(kind, {"metadata": {"name": name}})

    # Time

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        with self._lock:
            heapq.heappush(
                self._due, (self.clock.now() + timedelta(seconds=seconds), next(self._numbers), what)
            )

    def _live(self) -> None:
        while not self._stop.wait(0.002):
            with self._lock:
                while self._due and self._due[0][0] <= self.clock.now():
                    heapq.heappop(self._due)[2]()

    def _call(self, what: str = "calls") -> None:
        self.seen[what] += 1
        self.clock.sleep(CALL_SECONDS)

    def called(self, call: Call) -> None:
        """Sleep for the duration of a call to the cluster."""
        self.seen["Events"] += len(call.about) if call.method == "publish" else 0
        self._call()

    def _shut_down(self, call: Call) -> None:
        if call.method == "terminate":  # EC2's event arrives through interruption
            hint = Hint(builders.CLUSTER, "terminated")
            self._after(0.5, lambda: self._hints.send(Concern.TERMINATION, hint))

    # Who looks

    def _forward(self) -> None:
        while not self._stop.is_set():
            if self._forwarder._wait():
                self._forwarder._report()

    def _serve(self) -> None:
        """Run one execution environment of termination; only one waits for messages at a time."""
        with ThreadPoolExecutor(NODES_AT_ONCE) as pool:
            ports = self._store, self._cloud, self.cluster, self._blobs, self._hints
            run = Termination(builders.CLUSTER, *ports, self.clock.now, spread=pool.map)
            while not self._stop.is_set():
                with self._receiving:
                    while not self._received() and not self._stop.wait(0.002):
                        pass
                if self._stop.is_set():
                    return
                began = time.thread_time()
                try:
                    done = end_nodes(run).counts
                except Transient:
                    done = Counter(failed=1)
                self.seen["turned away" if done["TurnedAway"] else "looks"] += 1
                self.seen["failed"] += done["failed"]
                self.processor_seconds += time.thread_time() - began

    def _received(self) -> bool:
        with self._lock:
            if self._bought_at is None and Concern.PROVISIONING in self._hints.concerns():
                self._bought_at = self.clock.now() + timedelta(seconds=BOUGHT_SECONDS)
            return bool(self._hints.receive(Concern.TERMINATION))


class Queues(FakeHints):
    """Queues for several threads."""

    lock = threading.Lock()

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        with self.lock:
            super().send(concern, hint, delay_seconds)

    def receive(self, concern: Concern) -> list[Message]:
        with self.lock:
            return super().receive(concern)


class Cluster(FakeCluster):
    """The API server, to which evictions go through the real adapter."""

    def __init__(self, story: Drain) -> None:
        super().__init__(clock=story.clock.now, raise_before=story.called)
        self.raise_after = lambda call: story.show(*call.about)
        self._server = Evictions(story)

    def evict(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        return evict(self._server, pods)


class Evictions(ApiServer):
    """The parts of an API server that evictions need."""

    def __init__(self, story: Drain) -> None:
        self._story = story

    def get(self, path: str, **how: Any) -> Manifest | None:
        del how
        self._story._call("reads")
        pod = self._story.cluster.pods.get(f"default/{path.rpartition('/')[2]}")
        if pod is not None and pod["metadata"].get("deletionTimestamp"):
            self._story.seen["repeated"] += 1
        return pod

    def ask(
        self, method: Method, path: str, body: Mapping[str, Any], *, read_seconds: float
    ) -> tuple[int, Manifest]:
        del method, path, read_seconds
        return self._story.evict(f"default/{body['metadata']['name']}")


def _claim(number: int, now: datetime) -> NodeClaim:
    name = f"default-{number:03}"
    claim = builders.claim(name, instance_id=f"i-{name}", launched_at=now, created_at=now, revision=1)
    claim = claim.advanced(Phase.REGISTERED, now).advanced(Phase.INITIALIZED, now)
    return replace(claim, node_name=f"node-{number:03}")


def _instance(claim: NodeClaim) -> Instance:
    zone = claim.provider_id.split("/")[3]
    return Instance(
        claim.instance_id, claim.name, "m5.xlarge", zone, "on-demand", "ami-1", "running", claim.created_at
    )


def _node(claim: NodeClaim) -> Manifest:
    node = node_manifest(claim.node_name, claim.provider_id, claim.capacity, claim.created_at)
    metadata = {**node["metadata"], "labels": marks_of(claim), "finalizers": [TERMINATION_FINALIZER]}
    ready = {**node["status"], "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": {**node["spec"], "taints": []}, "status": ready}


def _pod(app: str, number: int, node: str, *, ready: bool) -> Manifest:
    pod = pod_manifest(f"{app}-{number}", "190m", nodeName=node, terminationGracePeriodSeconds=30)
    pod["metadata"]["labels"] = {"app": app}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {**pod, "status": {"phase": "Running", "conditions": conditions}}


def _budget(budget: Budget) -> Manifest:
    return {
        "metadata": {"name": budget.name, "namespace": "default", "generation": 1},
        "spec": {"minAvailable": "90%", "selector": {"matchLabels": {"app": budget.name}}},
        "status": {
            "disruptionsAllowed": budget.allowed,
            "currentHealthy": budget.ready,
            "desiredHealthy": PODS_AN_APP - ALLOWED,
            "expectedPods": PODS_AN_APP,
            "observedGeneration": 1,
        },
    }
