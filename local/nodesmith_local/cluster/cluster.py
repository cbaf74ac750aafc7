"""One loop that drives all stand-ins: it sleeps until something changes or is due."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Event, Thread
from typing import Protocol

from nodesmith_formats.kubernetes.objects import View, name_of
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.attachments import Attachments
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.deviceclaims import DeviceClaims
from nodesmith_local.cluster.events import EventExpiry
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.nodelifecycle import GRACE_SECONDS, NodeLifecycle, TaintEviction
from nodesmith_local.cluster.podgc import QUARANTINE_SECONDS, PodGarbageCollection
from nodesmith_local.cluster.podrunner import Pace, PodRunner
from nodesmith_local.cluster.scheduler import Scheduler
from nodesmith_local.cluster.volumeprovisioner import VolumeMaker
from nodesmith_local.cluster.workloads.budgets import Budgets
from nodesmith_local.cluster.workloads.daemonsets import DaemonSets
from nodesmith_local.cluster.workloads.deployments import Deployments
from nodesmith_local.cluster.workloads.jobs import Jobs
from nodesmith_local.cluster.workloads.replicasets import ReplicaSets
from nodesmith_local.cluster.workloads.statefulsets import StatefulSets

IDLE_SECONDS = 5.0  # the longest sleep, in real time
SILENCE_SECONDS = 5.0  # real seconds without a heartbeat that a node is allowed at any speed
GATHER_SECONDS = 0.005  # a short wait after a change, so that a burst is handled at once


class Part(Protocol):
    """A stand-in: does the pending work and reports when it needs to run again."""

    def step(self) -> bool:
        """Do the pending work and return whether anything was done."""

    def due(self) -> datetime | None:
        """Return the next time at which there is work, or None."""


class Cluster:
    """A cluster without its API server: controllers, scheduler, and the kubelets' work with pods."""

    def __init__(
        self,
        store: Store,
        *,
        pace: Pace = Pace(),  # noqa: B008 frozen
        node_grace_seconds: float = GRACE_SECONDS,
        quarantine_seconds: float = QUARANTINE_SECONDS,
    ) -> None:
        self.store = store
        self._wake = Event()
        self._mirrors = Mirrors(store, self._wake.set)
        self._node_lifecycle = NodeLifecycle(store, self._mirrors, node_grace_seconds)
        self._parts: tuple[Part, ...] = (
            Namespaces(store, self._mirrors),
            Deployments(store, self._mirrors),
            ReplicaSets(store, self._mirrors),
            StatefulSets(store, self._mirrors),
            DaemonSets(store, self._mirrors),
            Jobs(store, self._mirrors),
            DeviceClaims(store, self._mirrors),
            self._node_lifecycle,
            TaintEviction(store, self._mirrors),
            PodGarbageCollection(store, self._mirrors, quarantine_seconds),
            Scheduler(store, self._mirrors),
            VolumeMaker(store, self._mirrors),
            Attachments(store, self._mirrors),
            PodRunner(store, self._mirrors, pace),
            Budgets(store, self._mirrors),
            EventExpiry(store),
        )
        self._thread: Thread | None = None
        self._running = False

    def step(self) -> bool:
        """Let every stand-in do its pending work; return whether anything was done."""
        has_changed = False
        for part in self._parts:
            self._mirrors.refresh()
            has_changed = part.step() or has_changed
        return has_changed

    def settle(self, limit: int = 1000) -> int:
        """Step until nothing is left to do and return the number of steps. Raises RuntimeError at `limit`."""
        for count in range(limit):
            if not self.step():
                return count
        raise RuntimeError(f"the cluster did not settle within {limit} steps")

    def due(self) -> datetime | None:
        """Return the next time at which there is work if nothing changes before, or None."""
        return min((due for part in self._parts if (due := part.due()) is not None), default=None)

    def start(self, speed: float = 1.0) -> Cluster:
        """Run in a thread of its own. `speed` is the number of the cluster's seconds in a real second."""
        # At any speed, do not declare a kubelet dead because this machine was slow to run it.
        patience = timedelta(seconds=SILENCE_SECONDS * speed)
        self._node_lifecycle.grace = max(self._node_lifecycle.grace, patience)
        self._running = True
        self._thread = Thread(target=self._run, args=(speed,), name="cluster", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread permanently; a stopped cluster no longer follows the store."""
        self._running = False
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._mirrors.close()

    def _run(self, speed: float) -> None:
        while self._running:
            self._wake.clear()
            if self.step():
                continue
            if self._wake.wait(self._patience(speed)):
                Event().wait(GATHER_SECONDS)

    def _patience(self, speed: float) -> float:
        due = self.due()
        if due is None:
            return IDLE_SECONDS
        time_left: timedelta = due - self.store.now()
        return min(IDLE_SECONDS, max(0.001, time_left.total_seconds() / speed))


class Namespaces(Controller):
    """Creates the default ServiceAccount of every namespace."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        mirrors["namespaces"].listen(self.touch_object)

    def reconcile(self, key: tuple[str, str]) -> bool:
        """Create the ServiceAccount if one namespace lacks it."""
        namespace: View | None = self.mirrors["namespaces"].objects.get(key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return False
        namespace_name = name_of(namespace)
        if self.store.find("serviceaccounts", "default", namespace_name) is not None:
            return False
        self.store.create("serviceaccounts", {"metadata": {"name": "default", "namespace": namespace_name}})
        return True
