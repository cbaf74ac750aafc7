"""The kubelet's work on pods: start them on ready nodes, complete those that finish, carry out deletions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address

from nodesmith.decisions.launch.userdata.starting import full_name
from nodesmith_formats.kubernetes.objects import (
    Object,
    View,
    condition_of,
    dig,
    is_true,
    name_of,
    parse_timestamp,
    timestamp,
)
from nodesmith_local.apiserver.storage.deletion import DeleteOptions
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.attachments import ATTACHMENTS, are_attached
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_leaving, is_over, node_name
from nodesmith_local.cluster.records import with_condition

START_SECONDS = "local.nodesmith/start-seconds"  # annotation: how long a pod takes to become ready
RUN_SECONDS = "local.nodesmith/run-seconds"  # annotation: how long a pod runs that may finish
STOP_SECONDS = (
    "local.nodesmith/stop-seconds"  # annotation: how long a pod takes to stop, limited by its grace period
)
_FIRST_ADDRESS = int(IPv4Address("10.0.0.10"))


@dataclass(frozen=True, slots=True)
class Pace:
    """How long containers take to start, run and stop, in seconds of the cluster."""

    start_seconds: float = 2.0
    run_seconds: float = 10.0
    stop_seconds: float = 1.0
    pull_seconds: float = 0.0
    """how long a node takes to pull a pod's images, unless its status or an earlier pod shows that it has them"""


class PodRunner(Controller):
    """Runs the pods that are bound to Ready nodes.

    It does nothing on other nodes, or on a node whose kubelet stopped with its instance.
    """

    def __init__(self, store: Store, mirrors: Mirrors, pace: Pace) -> None:
        super().__init__(store, mirrors)
        self._pace = pace
        self._bound_at: dict[str, datetime] = {}
        self._addresses = 0
        self._pulled: dict[str, set[str]] = {}
        mirrors["pods"].listen(self._touch_bound)
        mirrors["nodes"].listen(self._touch_pods)
        mirrors[ATTACHMENTS].listen(self._touch_mounting)

    def reconcile(self, key: Key) -> bool:
        """Move one pod to its next state if that is due."""
        pod = self.mirrors.pods.get(key)
        node = self.mirrors.node(node_name(pod)) if pod is not None else None
        if pod is None or node is None or not is_true(node, "Ready"):
            return False
        if not self.mirrors.has_kubelet(name_of(node)):
            return False
        if is_leaving(pod):
            return self._stop(key, pod)
        if is_over(pod):
            return False
        if dig(pod, "status", "phase") != "Running":
            return self._start(key, pod, node)
        if not is_true(pod, "Ready"):
            return self._write(pod, _running(pod, self.store.now()))
        return self._maybe_complete(key, pod)

    def _start(self, key: Key, pod: View, node: View) -> bool:
        since = self._bound_at.setdefault(pod["metadata"]["uid"], self.store.now())
        if not are_attached(pod, self.mirrors):
            return False
        seconds = _seconds(pod, START_SECONDS, self._pace.start_seconds) + self._pull_seconds(pod, node)
        if not self._has_come(key, since, seconds):
            return False
        self._pulled.setdefault(node["metadata"]["uid"], set()).update(_images(pod))
        self._addresses += 1
        address = str(IPv4Address(_FIRST_ADDRESS + self._addresses))
        addresses = dig(node, "status", "addresses") or ()
        host = next((entry["address"] for entry in addresses if entry.get("type") == "InternalIP"), "")
        if dig(pod, "spec", "hostNetwork"):
            address = host
        status = _running(pod, self.store.now())
        status |= {"podIP": address, "podIPs": [{"ip": address}], "startTime": timestamp(since)}
        return self._write(pod, status | ({"hostIP": host} if host else {}))

    def _pull_seconds(self, pod: View, node: View) -> float:
        """Return how long the node still pulls images before the pod can start."""
        pulled = {name for image in dig(node, "status", "images") or () for name in image.get("names") or ()}
        pulled |= self._pulled.get(node["metadata"]["uid"], set())
        return 0.0 if _images(pod) <= pulled else self._pace.pull_seconds

    def _maybe_complete(self, key: Key, pod: View) -> bool:
        if dig(pod, "spec", "restartPolicy") == "Always":
            return False
        started = parse_timestamp(dig(pod, "status", "startTime")) or self.store.now()
        run = _seconds(pod, RUN_SECONDS, self._pace.run_seconds)
        start = _seconds(pod, START_SECONDS, self._pace.start_seconds)
        if not self._has_come(key, started, run + start):
            return False
        return self._write(pod, _completed(pod, self.store.now()))

    def _stop(self, key: Key, pod: View) -> bool:
        end = parse_timestamp(pod["metadata"]["deletionTimestamp"]) or self.store.now()
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        stop_seconds = min(grace, _seconds(pod, STOP_SECONDS, self._pace.stop_seconds))
        if not self._has_come(key, end - timedelta(seconds=grace), stop_seconds):
            return False
        self.store.delete("pods", key[1], key[0], DeleteOptions(grace_seconds=0))
        self._bound_at.pop(pod["metadata"]["uid"], None)
        return True

    def _has_come(self, key: Key, since: datetime, seconds: float) -> bool:
        time = since + timedelta(seconds=seconds)
        if self.store.now() < time:
            self.look_again(key, time)
            return False
        return True

    def _write(self, pod: View, status: Object) -> bool:
        self.store.patch(
            "pods", name_of(pod), {"status": status}, pod["metadata"]["namespace"], subresource="status"
        )
        return True

    def _touch_bound(self, before: View | None, after: View | None) -> None:
        if after is not None and node_name(after):
            self.touch_object(before, after)
        elif after is None and before is not None:
            self._bound_at.pop(before["metadata"]["uid"], None)

    def _touch_mounting(self, _before: View | None, after: View | None) -> None:
        if after is not None and dig(after, "status", "attached"):
            for pod in self.mirrors.pods_on(after["spec"]["nodeName"]):
                self.touch_object(None, pod)

    def _touch_pods(self, before: View | None, after: View | None) -> None:
        if after is not None and is_true(after, "Ready") and (before is None or not is_true(before, "Ready")):
            for pod in self.mirrors.pods_on(name_of(after)):
                self.touch_object(None, pod)


def _images(pod: View) -> set[str]:
    """Return the full names of a pod's images."""
    containers = [*pod["spec"]["containers"], *(dig(pod, "spec", "initContainers") or ())]
    return {full_name(str(container.get("image") or "")) for container in containers}


def _running(pod: View, now: datetime) -> Object:
    time = timestamp(now)
    conditions = list(dig(pod, "status", "conditions") or ())
    for kind in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "PodScheduled"):
        new = {"type": kind, "status": "True"}
        existing = condition_of({"status": {"conditions": conditions}}, kind)
        if existing is None or existing.get("status") != "True":
            conditions = [condition for condition in conditions if condition is not existing]
            conditions = with_condition({"status": {"conditions": conditions}}, new, time)
    return {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [
            _container(container, {"running": {"startedAt": time}}, ready=True)
            for container in pod["spec"]["containers"]
        ],
        "initContainerStatuses": [
            _init_container(init_container, time)
            for init_container in pod["spec"].get("initContainers") or ()
        ],
        "observedGeneration": pod["metadata"].get("generation", 0),
    }


def _init_container(container: View, time: str) -> Object:
    if container.get("restartPolicy") == "Always":  # a sidecar keeps running
        return _container(container, {"running": {"startedAt": time}}, ready=True)
    return _container(container, _terminated(time, time), ready=True)


def _completed(pod: View, now: datetime) -> Object:
    time = timestamp(now)
    conditions = dig(pod, "status", "conditions") or ()
    for kind in ("ContainersReady", "Ready"):
        new = {"type": kind, "status": "False", "reason": "PodCompleted"}
        conditions = with_condition({"status": {"conditions": conditions}}, new, time)
    started = dig(pod, "status", "startTime") or time
    statuses = [
        _container(container, _terminated(started, time), ready=False)
        for container in pod["spec"]["containers"]
    ]
    return {"phase": "Succeeded", "conditions": conditions, "containerStatuses": statuses}


def _terminated(started: str, finished: str) -> Object:
    return {
        "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": finished}
    }


def _container(container: View, state: Object, *, ready: bool) -> Object:
    names = {"name": container["name"], "image": container["image"], "imageID": ""}
    return {**names, "ready": ready, "started": "running" in state, "restartCount": 0, "state": state}


def _seconds(pod: View, annotation: str, otherwise: float) -> float:
    text = dig(pod, "metadata", "annotations", annotation)
    try:
        return float(text) if text else otherwise
    except ValueError:
        return otherwise
