"""Workloads from the manifests that an API server was given: pods and templates become the slots of a trace."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.provisioning import Inputs
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.ledger import fleet_of
from nodesmith_cli.planning.manifests import read_manifests
from nodesmith_cli.simulator.simulating.recorded import settled
from nodesmith_cli.simulator.simulating.slots import ObservedPod, slots, workload_of
from nodesmith_formats.manifests.manifests import Document
from nodesmith_local.simulation.trace import Slot, Trace

Manifest = Mapping[str, Any]
MOST_PODS = 200_000
"""The most pods in one trace: more than a week of a large cluster creates."""
_NOT_SHAPE = ("nodeName", "hostname", "subdomain", "schedulingGates")


@dataclass(slots=True)
class _Seen:
    """One pod that was seen, with the number of its template."""

    key: str
    template: int
    created_at: datetime
    ended_at: datetime | None = None
    bound_at: datetime | None = None
    runs: timedelta | None = None


@dataclass(slots=True)
class Workloads:
    """Collects pods in the order of events. `omissions` counts what could not be used, in a few words."""

    source: str
    omissions: Counter[str] = field(default_factory=Counter)
    pods: list[_Seen] = field(default_factory=list)
    alive: dict[str, _Seen] = field(default_factory=dict)
    """The pods that exist at the present event, by key."""
    _templates: list[Manifest] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def template(self, pod: Manifest) -> int:
        """Return the number of a pod's template: pods that differ in name, uid and node alone share one."""
        bare = _bare(pod)
        text = json.dumps(bare, sort_keys=True, default=str)
        if text not in self._numbers:
            self._numbers[text] = len(self._templates)
            self._templates.append(bare)
        return self._numbers[text]

    def create(self, key: str, pod: Manifest, at: datetime, runs: timedelta | None = None) -> None:
        """Note a new pod (namespace/name). Raises Rejected if there are too many."""
        if key in self.alive:
            return
        if len(self.pods) >= MOST_PODS:
            raise Rejected(f"{self.source}: more than {MOST_PODS:,} pods: use --since for a shorter time")
        first_seen = _Seen(key, self.template(pod), at, runs=runs)
        self.pods.append(first_seen)
        self.alive[key] = first_seen

    def end(self, key: str, at: datetime) -> bool:
        """Note the end of a pod. Return whether it was known."""
        seen = self.alive.pop(key, None)
        if seen is None:
            return False
        seen.ended_at = max(at, seen.created_at)
        return True

    def trace(
        self,
        files: Sequence[str],
        catalog: Catalog,
        settings: NodeSettings,
        start: datetime,
        end: datetime,
    ) -> tuple[Trace, list[str]]:
        """Return the trace between two times in the cluster that `files` describe, and the faults of manifests.

        Raises Rejected if the files have no NodePool, or if no pod is left.
        """
        documents = [
            Document(_named(bare, number), self.source, number + 1)
            for number, bare in enumerate(self._templates)
        ]
        manifests = read_manifests(files, documents)
        inputs = plan_inputs(manifests, catalog, settings=settings, now=start)
        shapes = {pod.key: pod.shape for pod in inputs.snapshot.pods}
        base = _base(inputs, start)
        observed_pods, jobs = self._observed_pods(shapes, start, end)
        own = [_of_file(pod, start) for pod in inputs.snapshot.pods if _is_of_file(pod, len(documents))]
        there = {node.name for node in base.snapshot.nodes}
        found = [
            slot if slot.node in there else replace(slot, node="")
            for slot in (*slots(observed_pods, start), *jobs, *own)
        ]
        if not found:
            raise Rejected(f"{self.source}: no pod that could be simulated{_why(self.omissions)}")
        found.sort(key=lambda slot: (slot.arrives, slot.key))
        faults = [str(fault) for fault in manifests.faults]
        return Trace(base, tuple(found), start, end, omissions=FrozenMap(self.omissions)), faults

    def _observed_pods(
        self, shapes: Mapping[str, Shape], start: datetime, end: datetime
    ) -> tuple[list[ObservedPod], list[Slot]]:
        observed_pods: list[ObservedPod] = []
        jobs: list[Slot] = []
        for seen in self.pods:
            shape = shapes.get(_key_of(self._templates[seen.template], seen.template))
            if shape is None:
                self.omissions["pods whose manifest is not valid"] += 1
                continue
            if seen.created_at > end or (seen.ended_at is not None and seen.ended_at <= start):
                continue
            self.omissions["pods without requests for cpu and memory, which take no room"] += not (
                shape.requests.cpu_milli or shape.requests.memory_bytes
            )
            if seen.runs is not None:
                arrives = max(seen.created_at, start)
                jobs.append(Slot(seen.key, workload_of(shape), shape, arrives, runs=seen.runs))
                continue
            ended = None if seen.ended_at is None else (seen.ended_at, seen.ended_at)
            observed_pods.append(ObservedPod(seen.key, shape, seen.created_at, ended, bound_at=seen.bound_at))
        self.omissions = +self.omissions
        return observed_pods, jobs


def _base(inputs: Inputs, start: datetime) -> Inputs:
    return settled(fleet_of(inputs, start))


def _is_of_file(pod: Pod, templates: int) -> bool:
    """Return whether a pod comes from a manifest of the cluster, not from a template of the trace."""
    prefix, _, number = pod.key.partition("/")[2].rpartition("-")
    return not (prefix == _PREFIX and number.isdigit() and int(number) < templates) and pod.shape.moves


def _of_file(pod: Pod, start: datetime) -> Slot:
    return Slot(pod.key, workload_of(pod.shape), pod.shape, start, node=pod.node)


def _bare(pod: Manifest) -> dict[str, Any]:
    """Return a pod's manifest without what differs between pods of one template, and without unknown volumes."""
    metadata = _mapping(pod.get("metadata"))
    spec = {key: value for key, value in _mapping(pod.get("spec")).items() if key not in _NOT_SHAPE}
    volumes = spec.get("volumes")
    if isinstance(volumes, list):
        spec["volumes"] = [v for v in volumes if not _mapping(v).get("persistentVolumeClaim")]
    spec["containers"] = [
        _slim(container) for container in spec.get("containers") or () if isinstance(container, Mapping)
    ]
    owners = metadata.get("ownerReferences")
    kept = {
        "namespace": str(metadata.get("namespace") or "default"),
        "labels": metadata.get("labels") or {},
        "annotations": metadata.get("annotations") or {},
        "ownerReferences": [
            {key: owner[key] for key in ("apiVersion", "kind", "name", "uid", "controller") if key in owner}
            for owner in (owners if isinstance(owners, list) else ())
            if isinstance(owner, Mapping)
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}


def _slim(container: Manifest) -> dict[str, Any]:
    """Return a container without what scheduling never reads, such as its environment."""
    return {
        key: value
        for key, value in container.items()
        if key in ("name", "image", "resources", "ports", "restartPolicy")
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_PREFIX = "nodesmith-simulate-template"


def _named(bare: Manifest, number: int) -> dict[str, Any]:
    return {**bare, "metadata": {**bare["metadata"], "name": f"{_PREFIX}-{number}"}}


def _key_of(bare: Manifest, number: int) -> str:
    return f"{bare['metadata']['namespace']}/{_PREFIX}-{number}"


def _why(omissions: Mapping[str, int]) -> str:
    parts = [f"{count:,} {omission}" for omission, count in sorted(omissions.items()) if count]
    return f" ({'; '.join(parts)})" if parts else ""


def within(moments: Iterable[datetime], since: timedelta | None) -> tuple[datetime, datetime]:
    """Return the first and the last of these times, or the last `since` of them. Raises Rejected if there are none."""
    ordered = sorted(moments)
    if not ordered:
        raise Rejected("no event that could be simulated")
    first, last = ordered[0], ordered[-1]
    start = first if since is None else max(first, last - since)
    return start, max(last, start + timedelta(seconds=1))
