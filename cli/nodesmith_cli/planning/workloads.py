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
        self.pod_counts: dict[Key, int] = {}
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
    quantity: int,
    existing: ExistingObjects,
    labels: Mapping[str, str] | None = None,
) -> Iterator[Manifest]:
    """Yield `quantity` pods of a template. Their names are numbered, since real names are random."""
    name, namespace = str(owner["metadata"]["name"]), str(owner["metadata"]["namespace"])
    numbers = count(1)
    for _ in range(quantity):
        number = next(n for n in numbers if Key("Pod", namespace, f"{name}-{n}") not in existing.names)
        yield pod_from(owner, template, f"{name}-{number}", labels or {})


def pod_from(owner: Manifest, template: Manifest, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return one pod of a template, with additional labels and with `owner` as its controller."""
    parent, template_metadata = owner["metadata"], template.get("metadata") or {}
    metadata = {
        "name": name,
        "namespace": parent["namespace"],
        "uid": f"{parent['uid']}-{name}",
        "creationTimestamp": parent["creationTimestamp"],
        "labels": {**(template_metadata.get("labels") or {}), **labels},
        "annotations": dict(template_metadata.get("annotations") or {}),
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": parent["name"],
                "uid": parent["uid"],
                "controller": True,
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def claim_from(template: Manifest, namespace: str, name: str, owner: Manifest) -> dict[str, Any]:
    """Return the PersistentVolumeClaim of a StatefulSet's pod. It outlives the StatefulSet, so it has no owner."""
    parent = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            **template["metadata"],
            "name": name,
            "namespace": namespace,
            "uid": f"{parent['uid']}-{name}",
            "creationTimestamp": parent["creationTimestamp"],
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
    existing = ExistingObjects(given)
    added: list[Document] = []
    for kind in WORKLOADS:
        for document in (d for d in given if d.manifest["kind"] == kind):
            try:
                created = list(_created(document, existing))
            except UNREADABLE as error:
                faults.append(document.fault(f"unreadable, so it gets no pods: {error}"))
                continue
            for manifest in created:
                existing.add(manifest)
                added.append(
                    Document(manifest, document.file, document.number, first_line=document.first_line)
                )
    return [*given, *added], faults


def _created(owner: Document, existing: ExistingObjects) -> Iterator[Manifest]:
    """Yield what the owner's controller would create. Yields nothing for an owner that is being deleted."""
    manifest = owner.manifest
    if manifest["metadata"].get("deletionTimestamp"):
        return
    match manifest["kind"]:
        case "ReplicaSet" | "ReplicationController":
            yield from _replicas(owner, existing)
        case "Deployment":
            yield from _deployment(owner, existing)
        case "StatefulSet":
            yield from _stateful(owner, existing)
        case "Job":
            yield from _job(manifest, existing.active(owner), existing)
        case "CronJob":
            yield from _cron(owner, existing)


def _replicas(owner: Document, existing: ExistingObjects) -> Iterator[Manifest]:
    active, replicas = len(existing.active(owner)), number(owner.manifest["spec"], "replicas", 1)
    existing.pod_counts[key_of(owner.manifest)] = max(active, replicas)
    yield from pods_from(owner.manifest, owner.manifest["spec"]["template"], replicas - active, existing)


def _deployment(owner: Document, existing: ExistingObjects) -> Iterator[Manifest]:
    """Yield the pods that a Deployment's ReplicaSets neither have nor will have.

    If the files contain pods but not their ReplicaSets, the selector identifies them.
    """
    manifest, spec = owner.manifest, owner.manifest["spec"]
    replicasets = [key_of(item) for item in existing.of(owner, "ReplicaSet")]
    pod_count = sum(existing.pod_counts.get(key, 0) for key in replicasets)
    selector = parse_selector(spec.get("selector"))
    namespace, prefix = manifest["metadata"]["namespace"], f"{manifest['metadata']['name']}-"
    for key, pods in existing.owned.items():
        if (key.kind, key.namespace) != ("ReplicaSet", namespace) or key in replicasets or selector is None:
            continue
        if key.name.startswith(prefix):
            pod_count += sum(
                is_active(p) and selector.matches(p["metadata"].get("labels") or {}) for p in pods
            )
    revision = template_hash(spec["template"])
    replicaset = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            **manifest["metadata"],
            "name": prefix + revision,
            "uid": f"{manifest['metadata']['uid']}-{revision}",
        },
    }
    lacking = number(spec, "replicas", 1) - pod_count
    yield from pods_from(replicaset, spec["template"], lacking, existing, {"pod-template-hash": revision})


def _stateful(owner: Document, existing: ExistingObjects) -> Iterator[Manifest]:
    """Yield each missing pod of a StatefulSet, with its missing PersistentVolumeClaims."""
    manifest, spec = owner.manifest, owner.manifest["spec"]
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    start = number(spec.get("ordinals") or {}, "start", 0)
    revision = f"{name}-{template_hash(spec['template'])}"
    templates = spec.get("volumeClaimTemplates") or ()
    for ordinal in range(start, start + number(spec, "replicas", 1)):
        pod_name = f"{name}-{ordinal}"
        if Key("Pod", namespace, pod_name) in existing.names:
            continue
        labels = {
            "statefulset.kubernetes.io/pod-name": pod_name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            "controller-revision-hash": revision,
        }
        pod = pod_from(manifest, spec["template"], pod_name, labels)
        claims = {str(t["metadata"]["name"]): t for t in templates}
        volumes = [v for v in pod["spec"].get("volumes") or () if v.get("name") not in claims]
        for volume, template in claims.items():
            claim = f"{volume}-{pod_name}"
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
            if Key("PersistentVolumeClaim", namespace, claim) not in existing.names:
                yield claim_from(template, namespace, claim, manifest)
        yield {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def _job(job: Manifest, active: list[Manifest], existing: ExistingObjects) -> Iterator[Manifest]:
    spec, status, name = job["spec"], job.get("status") or {}, str(job["metadata"]["name"])
    ended = any(
        c.get("type") in {"Complete", "Failed"} and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
    if ended or spec.get("suspend"):
        return
    parallel, succeeded = number(spec, "parallelism", 1), number(status, "succeeded", 0)
    if spec.get("completions") is not None:
        parallel = min(parallel, number(spec, "completions", 1) - succeeded)
    elif succeeded:
        parallel = 0  # a work queue that is finishing starts no new pods
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
    yield from pods_from(job, spec["template"], parallel - len(active), existing, labels)


def _cron(owner: Document, existing: ExistingObjects) -> Iterator[Manifest]:
    """Yield the pods of one run of a CronJob, unless a run is active."""
    manifest, spec = owner.manifest, owner.manifest["spec"]
    if spec.get("suspend") or any(_is_running(job) for job in existing.of(owner, "Job")):
        return
    template, metadata = spec["jobTemplate"], manifest["metadata"]
    template_metadata = template.get("metadata") or {}
    run = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **template_metadata,
            "name": f"{metadata['name']}-run",
            "namespace": metadata["namespace"],
        },
        "spec": template["spec"],
    }
    run["metadata"] |= {"uid": f"{metadata['uid']}-run", "creationTimestamp": metadata["creationTimestamp"]}
    yield from _job(run, [], existing)


def _is_running(job: Manifest) -> bool:
    return not any(c.get("status") == "True" for c in (job.get("status") or {}).get("conditions") or ())
