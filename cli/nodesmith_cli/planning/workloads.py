"""The pods that the controllers of workloads would still create, in addition to the existing ones.

Pods and PersistentVolumeClaims are made from templates as controllers make them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.observation.decoding import UNREADABLE
from nodesmith_formats.manifests.manifests import Document, Fault

Manifest = Mapping[str, Any]
_OVER = frozenset({"Failed", "Succeeded"})
_HASH_LENGTH = 10
_MOST = 150_000
"""The most pods in a cluster, from the Kubernetes documentation on large clusters."""
WORKLOADS: Mapping[str, str] = {
    "ReplicaSet": "apps",
    "Deployment": "apps",
    "ReplicationController": "",
    "StatefulSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
}
"""The kinds that create pods, with their API groups. ReplicaSets come before the Deployments that count them."""


class Key(NamedTuple):
    """The identity of an object. `namespace` is empty for a cluster-scoped object."""

    kind: str
    namespace: str
    name: str


class ExistingObjects:
    """The existing objects: pods by controller, and all names in use."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.owned: dict[Key, list[Manifest]] = {}
        self.names: set[Key] = set()
        self.wanted: dict[Key, int] = {}
        """The number of pods that each ReplicaSet has or will have."""
        for document in documents:
            self.add(document.manifest)

    def add(self, manifest: Manifest) -> None:
        """Record one more object."""
        metadata = manifest["metadata"]
        namespace = str(metadata.get("namespace") or "")
        self.names.add(Key(str(manifest["kind"]), namespace, str(metadata["name"])))
        owner = controller(metadata)
        if owner:
            key = Key(str(owner.get("kind")), namespace, str(owner.get("name")))
            self.owned.setdefault(key, []).append(manifest)

    def of(self, owner: Document, kind: str) -> list[Manifest]:
        """Return the objects of a kind that an owner controls."""
        return [m for m in self.owned.get(key_of(owner.manifest), ()) if m["kind"] == kind]

    def active(self, owner: Document) -> list[Manifest]:
        """Return an owner's pods that are neither finished nor being deleted."""
        return [pod for pod in self.of(owner, "Pod") if is_active(pod)]


def is_active(pod: Manifest) -> bool:
    """Return whether a controller counts a pod as a replica."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _OVER and not pod["metadata"].get("deletionTimestamp")


def controller(metadata: Manifest) -> Manifest:
    """Return the owner reference of an object's controller, or an empty mapping."""
    references = metadata.get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), {})


def key_of(manifest: Manifest) -> Key:
    """Return the key of an object."""
    metadata = manifest["metadata"]
    return Key(str(manifest["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"]))


def pods_from(
    owner: Manifest,
    template: Manifest,
    wanted: int,
    there: ExistingObjects,
    labels: Mapping[str, str] | None = None,
) -> Iterator[Manifest]:
    """Yield `wanted` pods of a template. Their names are numbered, since real names are random."""
    name, namespace = str(owner["metadata"]["name"]), str(owner["metadata"]["namespace"])
    numbers = count(1)
    for _ in range(wanted):
        number = next(n for n in numbers if Key("Pod", namespace, f"{name}-{n}") not in there.names)
        yield pod_from(owner, template, f"{name}-{number}", labels or {})


def pod_from(owner: Manifest, template: Manifest, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return one pod of a template, with additional labels and with `owner` as its controller."""
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


def claim_from(template: Manifest, namespace: str, name: str, owner: Manifest) -> dict[str, Any]:
    """Return the PersistentVolumeClaim of a StatefulSet's pod. It outlives the StatefulSet, so it has no owner."""
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


def number(holder: Manifest, field: str, default: int) -> int:
    """Return a count in a field. Raises ValueError, naming the field, if it is invalid."""
    value = holder.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{field} is {value!r}: must be a whole number")
    if value > _MOST:
        raise ValueError(f"{field} is {value}: no cluster runs more than {_MOST} pods")
    return value


def template_hash(template: Manifest) -> str:
    """Return a hash of a template."""
    text = json.dumps(template, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def with_pods(documents: Iterable[Document]) -> tuple[list[Document], list[Fault]]:
    """Return the objects, followed by the missing pods of workloads, and the faults of workloads."""
    given, faults = list(documents), []
    there = ExistingObjects(given)
    added: list[Document] = []
    for kind in WORKLOADS:
        for document in (d for d in given if d.manifest["kind"] == kind):
            try:
                made = list(_made(document, there))
            except UNREADABLE as error:
                faults.append(document.fault(f"unreadable, so it gets no pods: {error}"))
                continue
            for manifest in made:
                there.add(manifest)
                added.append(
                    Document(manifest, document.file, document.number, first_line=document.first_line)
                )
    return [*given, *added], faults


def _made(owner: Document, there: ExistingObjects) -> Iterator[Manifest]:
    """Yield what the owner's controller would create. Yields nothing for an owner that is being deleted."""
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


def _replicas(owner: Document, there: ExistingObjects) -> Iterator[Manifest]:
    has, wanted = len(there.active(owner)), number(owner.manifest["spec"], "replicas", 1)
    there.wanted[key_of(owner.manifest)] = max(has, wanted)
    yield from pods_from(owner.manifest, owner.manifest["spec"]["template"], wanted - has, there)


def _deployment(owner: Document, there: ExistingObjects) -> Iterator[Manifest]:
    """Yield the pods that a Deployment's ReplicaSets neither have nor will have.

    If the files contain pods but not their ReplicaSets, the selector identifies them.
    """
    manifest, spec = owner.manifest, owner.manifest["spec"]
    known = [key_of(each) for each in there.of(owner, "ReplicaSet")]
    has = sum(there.wanted.get(key, 0) for key in known)
    selector = parse_selector(spec.get("selector"))
    namespace, prefix = manifest["metadata"]["namespace"], f"{manifest['metadata']['name']}-"
    for key, pods in there.owned.items():
        if (key.kind, key.namespace) != ("ReplicaSet", namespace) or key in known or selector is None:
            continue
        if key.name.startswith(prefix):
            has += sum(is_active(p) and selector.matches(p["metadata"].get("labels") or {}) for p in pods)
    mark = template_hash(spec["template"])
    replicaset = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            **manifest["metadata"],
            "name": prefix + mark,
            "uid": f"{manifest['metadata']['uid']}-{mark}",
        },
    }
    lacking = number(spec, "replicas", 1) - has
    yield from pods_from(replicaset, spec["template"], lacking, there, {"pod-template-hash": mark})


def _stateful(owner: Document, there: ExistingObjects) -> Iterator[Manifest]:
    """Yield each missing pod of a StatefulSet, with its missing PersistentVolumeClaims."""
    manifest, spec = owner.manifest, owner.manifest["spec"]
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    start = number(spec.get("ordinals") or {}, "start", 0)
    mark = f"{name}-{template_hash(spec['template'])}"
    templates = spec.get("volumeClaimTemplates") or ()
    for ordinal in range(start, start + number(spec, "replicas", 1)):
        pod_name = f"{name}-{ordinal}"
        if Key("Pod", namespace, pod_name) in there.names:
            continue
        labels = {
            "statefulset.kubernetes.io/pod-name": pod_name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            "controller-revision-hash": mark,
        }
        pod = pod_from(manifest, spec["template"], pod_name, labels)
        claims = {str(t["metadata"]["name"]): t for t in templates}
        volumes = [v for v in pod["spec"].get("volumes") or () if v.get("name") not in claims]
        for volume, template in claims.items():
            claim = f"{volume}-{pod_name}"
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
            if Key("PersistentVolumeClaim", namespace, claim) not in there.names:
                yield claim_from(template, namespace, claim, manifest)
        yield {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def _job(job: Manifest, active: list[Manifest], there: ExistingObjects) -> Iterator[Manifest]:
    spec, status, name = job["spec"], job.get("status") or {}, str(job["metadata"]["name"])
    ended = any(
        c.get("type") in {"Complete", "Failed"} and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
    if ended or spec.get("suspend"):
        return
    wanted, succeeded = number(spec, "parallelism", 1), number(status, "succeeded", 0)
    if spec.get("completions") is not None:
        wanted = min(wanted, number(spec, "completions", 1) - succeeded)
    elif succeeded:
        wanted = 0  # a work queue that is finishing starts no new pods
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
    yield from pods_from(job, spec["template"], wanted - len(active), there, labels)


def _cron(owner: Document, there: ExistingObjects) -> Iterator[Manifest]:
    """Yield the pods of one run of a CronJob, unless a run is active."""
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
