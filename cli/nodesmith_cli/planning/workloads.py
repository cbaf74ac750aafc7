"""Workloads as the pods that their controllers would still make: what is there already is never made twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from nodesmith.model.selectors import parse_selector
from nodesmith.observation.wire import UNREADABLE
from nodesmith_cli.local.manifests import Document, Fault

Manifest = Mapping[str, Any]
WORKLOADS: Mapping[str, str] = {
    "ReplicaSet": "apps",
    "Deployment": "apps",
    "ReplicationController": "",
    "StatefulSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
}
"""Kinds that are given pods, with their API group; ReplicaSets come before the Deployments that count them."""
_OVER = frozenset({"Failed", "Succeeded"})
_HASH_LENGTH = 10
_MOST = 150_000
"""Pods that Kubernetes is built for (its documentation on large clusters)."""


class _Owner(NamedTuple):
    kind: str
    namespace: str
    name: str


class _Made(NamedTuple):
    """A pod, or a claim of a StatefulSet's pod, that a controller would make."""

    by: Document
    manifest: Manifest


def with_pods(documents: Iterable[Document]) -> tuple[list[Document], list[Fault]]:
    """Add to the objects the pods that workloads still lack, after all others; and what is wrong with workloads."""
    given, faults = list(documents), []
    there = _There(given)
    added: list[Document] = []
    for kind in WORKLOADS:
        for document in (d for d in given if d.manifest["kind"] == kind):
            try:
                made = list(_made(document, there))
            except UNREADABLE as error:
                faults.append(document.fault(f"cannot be read, it is given no pods: {error}"))
                continue
            for manifest in made:
                there.add(manifest)
                added.append(
                    Document(manifest, document.file, document.number, first_line=document.first_line)
                )
    return [*given, *added], faults


class _There:
    """What exists: pods and what controls them, and every name that is taken."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.owned: dict[_Owner, list[Manifest]] = {}
        self.names: set[_Owner] = set()
        self.wanted: dict[_Owner, int] = {}
        """pods that a ReplicaSet has or will have"""
        for document in documents:
            self.add(document.manifest)

    def add(self, manifest: Manifest) -> None:
        """Take note of one object more."""
        metadata = manifest["metadata"]
        namespace = str(metadata.get("namespace") or "")
        self.names.add(_Owner(str(manifest["kind"]), namespace, str(metadata["name"])))
        owner = controller(metadata)
        if owner:
            key = _Owner(str(owner.get("kind")), namespace, str(owner.get("name")))
            self.owned.setdefault(key, []).append(manifest)

    def of(self, owner: Document, kind: str) -> list[Manifest]:
        """Give the objects of a kind that an owner controls."""
        return [m for m in self.owned.get(_key(owner.manifest), ()) if m["kind"] == kind]

    def active(self, owner: Document) -> list[Manifest]:
        """Give an owner's pods that neither have ended nor are on their way out."""
        return [pod for pod in self.of(owner, "Pod") if is_active(pod)]


def is_active(pod: Manifest) -> bool:
    """Tell whether a controller counts a pod among those it has."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _OVER and not pod["metadata"].get("deletionTimestamp")


def controller(metadata: Manifest) -> Manifest:
    """Give the reference to what controls an object, empty where nothing does."""
    references = metadata.get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), {})


def _key(manifest: Manifest) -> _Owner:
    metadata = manifest["metadata"]
    return _Owner(str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))


def _made(owner: Document, there: _There) -> Iterator[Manifest]:
    """Give what the owner's controller would make; nothing for one that is being deleted."""
    manifest = owner.manifest
    if manifest["metadata"].get("deletionTimestamp"):
        return
    match manifest["kind"]:
        case "ReplicaSet" | "ReplicationController":
            yield from _replicas(owner, there)
        case "Deployment":
            yield from _deployment(owner, there)
        case "StatefulSet":
            yield from _stateful(owner, there)
        case "Job":
            yield from _job(manifest, there.active(owner), there)
        case "CronJob":
            yield from _cron(owner, there)


def _replicas(owner: Document, there: _There) -> Iterator[Manifest]:
    has, wanted = len(there.active(owner)), _number(owner.manifest["spec"], "replicas", 1)
    there.wanted[_key(owner.manifest)] = max(has, wanted)
    yield from _pods(owner.manifest, owner.manifest["spec"]["template"], wanted - has, there)


def _deployment(owner: Document, there: _There) -> Iterator[Manifest]:
    """Lack what its ReplicaSets have not and will not have.

    Where a dump holds the pods but not the ReplicaSets, they are told by the selector.
    """
    manifest, spec = owner.manifest, owner.manifest["spec"]
    known = [_key(each) for each in there.of(owner, "ReplicaSet")]
    has = sum(there.wanted.get(key, 0) for key in known)
    selector = parse_selector(spec.get("selector"))
    namespace, prefix = manifest["metadata"]["namespace"], f"{manifest['metadata']['name']}-"
    for key, pods in there.owned.items():
        if (key.kind, key.namespace) != ("ReplicaSet", namespace) or key in known or selector is None:
            continue
        if key.name.startswith(prefix):
            has += sum(is_active(p) and selector.matches(p["metadata"].get("labels") or {}) for p in pods)
    mark = _hash(spec["template"])
    replicaset = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            **manifest["metadata"],
            "name": prefix + mark,
            "uid": f"{manifest['metadata']['uid']}-{mark}",
        },
    }
    lacking = _number(spec, "replicas", 1) - has
    yield from _pods(replicaset, spec["template"], lacking, there, {"pod-template-hash": mark})


def _stateful(owner: Document, there: _There) -> Iterator[Manifest]:
    """Make each pod that is missing by its number, with the claims of its own that are not there yet."""
    manifest, spec = owner.manifest, owner.manifest["spec"]
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    start = _number(spec.get("ordinals") or {}, "start", 0)
    mark = f"{name}-{_hash(spec['template'])}"
    templates = spec.get("volumeClaimTemplates") or ()
    for ordinal in range(start, start + _number(spec, "replicas", 1)):
        pod_name = f"{name}-{ordinal}"
        if _Owner("Pod", namespace, pod_name) in there.names:
            continue
        labels = {
            "statefulset.kubernetes.io/pod-name": pod_name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            "controller-revision-hash": mark,
        }
        pod = _pod(manifest, spec["template"], pod_name, labels)
        claims = {str(t["metadata"]["name"]): t for t in templates}
        volumes = [v for v in pod["spec"].get("volumes") or () if v.get("name") not in claims]
        for volume, template in claims.items():
            claim = f"{volume}-{pod_name}"
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
            if _Owner("PersistentVolumeClaim", namespace, claim) not in there.names:
                yield _claim(template, namespace, claim, manifest)
        yield {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def _job(job: Manifest, active: list[Manifest], there: _There) -> Iterator[Manifest]:
    spec, status, name = job["spec"], job.get("status") or {}, str(job["metadata"]["name"])
    ended = any(
        c.get("type") in {"Complete", "Failed"} and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
    if ended or spec.get("suspend"):
        return
    wanted, succeeded = _number(spec, "parallelism", 1), _number(status, "succeeded", 0)
    if spec.get("completions") is not None:
        wanted = min(wanted, _number(spec, "completions", 1) - succeeded)
    elif succeeded:
        wanted = 0  # a work queue is being emptied: nothing new is started
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
    yield from _pods(job, spec["template"], wanted - len(active), there, labels)


def _cron(owner: Document, there: _There) -> Iterator[Manifest]:
    """Make one run, unless one is under way."""
    manifest, spec = owner.manifest, owner.manifest["spec"]
    if spec.get("suspend") or any(_is_running(job) for job in there.of(owner, "Job")):
        return
    template, about = spec["jobTemplate"], manifest["metadata"]
    given = template.get("metadata") or {}
    run = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**given, "name": f"{about['name']}-run", "namespace": about["namespace"]},
        "spec": template["spec"],
    }
    run["metadata"] |= {"uid": f"{about['uid']}-run", "creationTimestamp": about["creationTimestamp"]}
    yield from _job(run, [], there)


def _is_running(job: Manifest) -> bool:
    return not any(c.get("status") == "True" for c in (job.get("status") or {}).get("conditions") or ())


def _pods(
    owner: Manifest, template: Manifest, wanted: int, there: _There, labels: Mapping[str, str] | None = None
) -> Iterator[Manifest]:
    """Make so many pods of a template, numbered: their real names are drawn by lot and cannot be known."""
    name, namespace = str(owner["metadata"]["name"]), str(owner["metadata"]["namespace"])
    numbers = count(1)
    for _ in range(wanted):
        number = next(n for n in numbers if _Owner("Pod", namespace, f"{name}-{n}") not in there.names)
        yield _pod(owner, template, f"{name}-{number}", labels or {})


def _pod(owner: Manifest, template: Manifest, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    about, given = owner["metadata"], template.get("metadata") or {}
    metadata = {
        "name": name,
        "namespace": about["namespace"],
        "uid": f"{about['uid']}-{name}",
        "creationTimestamp": about["creationTimestamp"],
        "labels": {**(given.get("labels") or {}), **labels},
        "annotations": dict(given.get("annotations") or {}),
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": about["name"],
                "uid": about["uid"],
                "controller": True,
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _claim(template: Manifest, namespace: str, name: str, owner: Manifest) -> dict[str, Any]:
    about = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            **template["metadata"],
            "name": name,
            "namespace": namespace,
            "uid": f"{about['uid']}-{name}",
            "creationTimestamp": about["creationTimestamp"],
        },
        "spec": template.get("spec") or {},
    }


def _number(holder: Manifest, field: str, default: int) -> int:
    """Read a count. Raises ValueError, naming the field, for what is none."""
    value = holder.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{field} is {value!r}: must be a whole number")
    if value > _MOST:
        raise ValueError(f"{field} is {value}: no cluster runs more than {_MOST} pods")
    return value


def _hash(template: Manifest) -> str:
    text = json.dumps(template, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
