"""What a cluster gives objects that files leave out: what pods ask of classes, states of being new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.resources import format_resources, parse_resources
from nodesmith.model.apimachinery.spelling import did_you_mean
from nodesmith.observation.decoding import UNREADABLE
from nodesmith.observation.reduction.limitranges import reduce_limit_range, with_default_requests
from nodesmith_cli.local.manifests import Document, Fault
from nodesmith_cli.planning.existing import is_active

Manifest = Mapping[str, Any]
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def admitted(documents: Iterable[Document]) -> tuple[list[Document], list[Fault]]:
    """Complete every pod, and call those without a node unschedulable, as kube-scheduler would.

    A class that is named and not there is told once, and the pod goes on without. A volume without a phase is free, and
    a node that does not say what it offers to pods offers all it has.
    """
    given = list(documents)
    classes = _Classes(given)
    complete: list[Document] = []
    for document in given:
        try:
            complete.append(replace(document, manifest=_completed(document, classes)))
        except UNREADABLE as error:
            classes.faults.append(document.fault(f"cannot be read and is left out: {error!r}"))
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
    """What a RuntimeClass adds to a pod."""

    overhead: dict[str, str]
    node_selector: dict[str, str]
    tolerations: list[dict[str, Any]]


def _runtime(manifest: Manifest) -> _Runtime:
    """Read a RuntimeClass. Raises as UNREADABLE lists."""
    scheduling = manifest.get("scheduling") or {}
    return _Runtime(
        format_resources(parse_resources((manifest.get("overhead") or {}).get("podFixed"))),
        {str(key): str(value) for key, value in (scheduling.get("nodeSelector") or {}).items()},
        [dict(toleration) for toleration in scheduling.get("tolerations") or ()],
    )


class _Classes:
    """PriorityClasses and RuntimeClasses by name, and what pods ask of them in vain."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.faults: list[Fault] = []
        self._told: set[tuple[str, str]] = set()
        self._priority = dict(_SYSTEM)
        self._runtime: dict[str, _Runtime] = {}
        self._default = 0
        self._requests: dict[str, dict[str, Any]] = {}
        for document in documents:
            try:
                self._learn(document.manifest)
            except UNREADABLE as error:
                self.faults.append(document.fault(f"cannot be read and is left out: {error}"))

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
        """Complete one pod. Raises as UNREADABLE lists."""
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
            self._tell(document, "PriorityClass", "spec.priorityClassName", name, self._priority)
        return self._priority.get(name, 0)

    def _runtime_of(self, document: Document, spec: Manifest) -> dict[str, Any]:
        """Return what the class adds; what a pod of a live cluster has been given already is not added again."""
        name = str(spec["runtimeClassName"])
        found = self._runtime.get(name)
        if found is None:
            if spec.get("overhead") is None:
                self._tell(document, "RuntimeClass", "spec.runtimeClassName", name, self._runtime)
            return {}
        tolerations = list(spec.get("tolerations") or ())
        return {
            "overhead": spec.get("overhead") or found.overhead,
            "nodeSelector": {**found.node_selector, **(spec.get("nodeSelector") or {})},
            "tolerations": tolerations + [t for t in found.tolerations if t not in tolerations],
        }

    def _tell(self, document: Document, kind: str, field: str, name: str, known: Mapping[str, Any]) -> None:
        if (kind, name) not in self._told:
            self._told.add((kind, name))
            hint = did_you_mean(name, frozenset(known)) or ": add it to the files"
            message = f"there is no {kind} {name!r}{hint}; the pods are planned without"
            self.faults.append(document.fault(message, field))


def _pending(pod: Manifest, spec: Manifest) -> Manifest:
    """Call a pod unschedulable that waits for a node, unless a gate holds it."""
    status: Manifest = pod.get("status") or {}
    if spec.get("nodeName") or spec.get("schedulingGates") or not is_active(pod):
        return status
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    return {**status, "conditions": [*others, _UNSCHEDULABLE]}
