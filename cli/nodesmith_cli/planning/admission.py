"""The fields that a cluster fills in and files omit: those from classes and LimitRanges, and initial status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.quantities import format_resources, parse_resources
from nodesmith.observation.observed import UNREADABLE
from nodesmith.observation.reduction.podspecs import reduce_limit_range, with_default_requests
from nodesmith_cli.planning.workloads import is_active
from nodesmith_formats.manifests.manifests import Document, Fault

Manifest = Mapping[str, Any]
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def admitted(documents: Iterable[Document]) -> tuple[list[Document], list[Fault]]:
    """Complete every pod, and mark pods without a node as unschedulable, as kube-scheduler does.

    A missing PriorityClass or RuntimeClass is reported once, and ignored. A volume without a phase is available. A node
    without allocatable offers all of its capacity.
    """
    given = list(documents)
    classes = _Classes(given)
    complete: list[Document] = []
    for document in given:
        try:
            complete.append(replace(document, manifest=_completed(document, classes)))
        except UNREADABLE as error:
            classes.faults.append(document.fault(f"unreadable, and ignored: {error!r}"))
    return complete, classes.faults


def _completed(document: Document, classes: _Classes) -> Manifest:
    manifest = document.manifest
    match manifest["kind"]:
        case "Pod":
            return classes.admit(document)
        case "PersistentVolume" if not (manifest.get("status") or {}).get("phase"):
            return {**manifest, "status": {"phase": "Available"}}
        case "Node":
            status = manifest.get("status") or {}
            return {**manifest, "status": {"allocatable": status.get("capacity"), **status}}
        case _:
            return manifest


class _Runtime(NamedTuple):
    """The fields that a RuntimeClass adds to a pod."""

    overhead: dict[str, str]
    node_selector: dict[str, str]
    tolerations: list[dict[str, Any]]


def _runtime(manifest: Manifest) -> _Runtime:
    """Parse a RuntimeClass. Raises the exceptions in UNREADABLE."""
    scheduling = manifest.get("scheduling") or {}
    return _Runtime(
        format_resources(parse_resources((manifest.get("overhead") or {}).get("podFixed"))),
        {str(key): str(value) for key, value in (scheduling.get("nodeSelector") or {}).items()},
        [dict(toleration) for toleration in scheduling.get("tolerations") or ()],
    )


class _Classes:
    """PriorityClasses, RuntimeClasses and default requests, with faults about missing classes."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.faults: list[Fault] = []
        self._reported: set[tuple[str, str]] = set()
        self._priority = dict(_SYSTEM)
        self._runtime: dict[str, _Runtime] = {}
        self._default = 0
        self._requests: dict[str, dict[str, Any]] = {}
        for document in documents:
            try:
                self._learn(document.manifest)
            except UNREADABLE as error:
                self.faults.append(document.fault(f"unreadable, and ignored: {error}"))

    def _learn(self, manifest: Manifest) -> None:
        name = str(manifest["metadata"]["name"])
        if manifest["kind"] == "PriorityClass":
            self._priority[name] = int(manifest["value"])
            if manifest.get("globalDefault"):
                self._default = self._priority[name]
        elif manifest["kind"] == "RuntimeClass":
            self._runtime[name] = _runtime(manifest)
        elif manifest["kind"] == "LimitRange":
            reduced = reduce_limit_range(manifest)
            namespace = reduced["metadata"]["namespace"]
            self._requests[namespace] = {**reduced["requests"], **self._requests.get(namespace, {})}

    def admit(self, document: Document) -> Manifest:
        """Complete one pod. Raises the exceptions in UNREADABLE."""
        pod, spec = document.manifest, dict(document.manifest["spec"])
        spec = with_default_requests(spec, self._requests.get(str(pod["metadata"]["namespace"]), {}))
        if spec.get("priority") is None:
            spec["priority"] = self._priority_of(document, spec.get("priorityClassName"))
        if spec.get("runtimeClassName"):
            spec |= self._runtime_of(document, spec)
        return {**pod, "spec": spec, "status": _pending(pod, spec)}

    def _priority_of(self, document: Document, name: str | None) -> int:
        if not name:
            return self._default
        if name not in self._priority:
            self._report_missing(document, "PriorityClass", "spec.priorityClassName", name, self._priority)
        return self._priority.get(name, 0)

    def _runtime_of(self, document: Document, spec: Manifest) -> dict[str, Any]:
        """Return the pod fields that its RuntimeClass sets. Fields that a live cluster has already set are kept."""
        name = str(spec["runtimeClassName"])
        runtime = self._runtime.get(name)
        if runtime is None:
            if spec.get("overhead") is None:
                self._report_missing(document, "RuntimeClass", "spec.runtimeClassName", name, self._runtime)
            return {}
        tolerations = list(spec.get("tolerations") or ())
        return {
            "overhead": spec.get("overhead") or runtime.overhead,
            "nodeSelector": {**runtime.node_selector, **(spec.get("nodeSelector") or {})},
            "tolerations": tolerations + [t for t in runtime.tolerations if t not in tolerations],
        }

    def _report_missing(
        self, document: Document, kind: str, field: str, name: str, names: Mapping[str, Any]
    ) -> None:
        if (kind, name) not in self._reported:
            self._reported.add((kind, name))
            hint = did_you_mean(name, frozenset(names)) or ": add it to the files"
            message = f"{kind} {name!r} does not exist{hint}; planning without it"
            self.faults.append(document.fault(message, field))


def _pending(pod: Manifest, spec: Manifest) -> Manifest:
    """Return the status of a pod, marked as unschedulable if it waits for a node and has no scheduling gate."""
    status: Manifest = pod.get("status") or {}
    if spec.get("nodeName") or spec.get("schedulingGates") or not is_active(pod):
        return status
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    return {**status, "conditions": [*others, _UNSCHEDULABLE]}
