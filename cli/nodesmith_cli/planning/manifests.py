"""The objects of a plan: manifests from files, completed as in a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.observation.podgroups import APIS
from nodesmith_cli.manifests.converting.objects import converted_documents
from nodesmith_cli.planning.admission import admitted
from nodesmith_cli.planning.checking import checked
from nodesmith_cli.planning.workloads import WORKLOADS, with_pods
from nodesmith_formats.manifests.manifests import Document, Fault, load_manifests
from nodesmith_formats.manifests.manifests import Manifests as Loaded

GROUPS: Mapping[str, str] = {
    **WORKLOADS,
    "Pod": "",
    "Node": "",
    "Namespace": "",
    "LimitRange": "",
    "PodTemplate": "",
    "CapacityBuffer": "autoscaling.x-k8s.io",
    "PersistentVolume": "",
    "PersistentVolumeClaim": "",
    "DaemonSet": "apps",
    "StorageClass": "storage.k8s.io",
    "CSINode": "storage.k8s.io",
    "VolumeAttachment": "storage.k8s.io",
    "PriorityClass": "scheduling.k8s.io",
    "RuntimeClass": "node.k8s.io",
    "PodDisruptionBudget": "policy",
    "CapacityQuota": "autoscaling.x-k8s.io",
    "NodePool": "karpenter.sh",
    "NodeClaim": "karpenter.sh",
    "NodeOverlay": "karpenter.sh",
    "EC2NodeClass": "karpenter.k8s.aws",
    "ProvisioningRequest": "autoscaling.x-k8s.io",
    "ResourceClaim": "resource.k8s.io",
    "ResourceClaimTemplate": "resource.k8s.io",
    "DeviceClass": "resource.k8s.io",
    "ResourceSlice": "resource.k8s.io",
}
"""The kinds that a plan reads, with their API groups."""
_CURRENT_KINDS = {"Machine": "NodeClaim"}


@dataclass(frozen=True, slots=True)
class Manifests(Loaded):
    """The objects read, including the pods of workloads. `unread` counts objects of other kinds, by kind."""

    unread: Mapping[str, int] = field(default_factory=dict)


def read_manifests(paths: Sequence[str], more: Iterable[Document] = ()) -> Manifests:
    """Read files, folders, and `-` for standard input. `more` are objects from elsewhere. Never raises.

    Adds the missing pods of workloads, and completes pods as a cluster's admission does. A pod without a node is
    pending, whatever its status says. `faults` has the problems; the affected objects are skipped.
    """
    loaded = load_manifests(paths)
    converted, conversion_faults = converted_documents((*more, *loaded.documents))
    documents, unread, faults = _relevant(converted)
    sound, check_faults = checked(documents)
    expanded, workload_faults = with_pods(sound)
    complete, admission_faults = admitted(expanded)
    return Manifests(
        (*complete, *_namespaces(complete)),
        (*loaded.faults, *conversion_faults, *faults, *check_faults, *workload_faults, *admission_faults),
        unread,
    )


def _namespaces(documents: Sequence[Document]) -> Iterator[Document]:
    """Yield the namespaces that objects are in but no file defines."""
    names = {d.manifest["metadata"]["name"] for d in documents if d.manifest["kind"] == "Namespace"}
    for document in documents:
        name = document.manifest["metadata"].get("namespace")
        if name and name not in names:
            names.add(name)
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            yield stamped(Document(namespace, document.file, document.number))


def restricted(manifests: Manifests, pools: Collection[str]) -> Manifests:
    """Keep only the named NodePools, or all if none is named. Raises Rejected for a NodePool that does not exist."""
    names = frozenset(str(pool["metadata"]["name"]) for pool in manifests.of_kind("NodePool"))
    for name in pools:
        if name not in names:
            hint = did_you_mean(name, names) or f"; existing: {', '.join(sorted(names)) or 'none'}"
            raise Rejected(f"--pool {name}: no such NodePool{hint}")

    def is_kept(manifest: Mapping[str, Any]) -> bool:
        return manifest["kind"] != "NodePool" or not pools or manifest["metadata"]["name"] in pools

    return replace(manifests, documents=tuple(d for d in manifests.documents if is_kept(d.manifest)))


def _relevant(documents: Iterable[Document]) -> tuple[list[Document], dict[str, int], list[Fault]]:
    """Return the objects that a plan reads, each once, with the counts of other kinds and the faults."""
    by_identity: dict[tuple[Any, ...], Document] = {}
    unread: Counter[str] = Counter()
    faults: list[Fault] = []
    for document in documents:
        kind = str(document.manifest["kind"])
        group = str(document.manifest["apiVersion"]).rpartition("/")[0]
        if GROUPS.get(kind) == group or (kind, group) in APIS:
            by_identity[document.identity] = stamped(document)
            continue
        unread[kind] += 1
        current_kind = _CURRENT_KINDS.get(kind, kind if kind in GROUPS else "")
        if current_kind:
            version = "v1alpha1" if current_kind == "NodeOverlay" else "v1"
            api_version = "/".join(filter(None, (GROUPS[current_kind], version)))
            faults.append(document.fault(f"is ignored: use a {current_kind} of {api_version}", "apiVersion"))
        elif hint := did_you_mean(kind, frozenset(GROUPS)):
            faults.append(document.fault(f"is {kind!r}, which is ignored{hint}", "kind"))
    return list(by_identity.values()), dict(sorted(unread.items())), faults


_UNNAMESPACED = frozenset(
    "Node Namespace PersistentVolume StorageClass CSINode VolumeAttachment PriorityClass RuntimeClass NodePool"
    " NodeClaim NodeOverlay EC2NodeClass CapacityQuota DeviceClass ResourceSlice".split()
)
_CREATED = "2000-01-01T00:00:00Z"
"""The creation time of objects without one. It is fixed, so that the same files always give the same plan."""


def stamped(document: Document) -> Document:
    """Return an object with the metadata that an API server adds: name, namespace, uid and creation time."""
    manifest, metadata = document.manifest, dict(document.manifest["metadata"])
    kind = str(manifest["kind"])
    name = metadata.get("name") or f"{metadata['generateName']}{document.number}"
    metadata |= {"name": str(name), "creationTimestamp": metadata.get("creationTimestamp") or _CREATED}
    if kind not in _UNNAMESPACED:
        metadata["namespace"] = metadata.get("namespace") or "default"
    place = "/".join(filter(None, (kind, metadata.get("namespace"), metadata["name"])))
    metadata["uid"] = metadata.get("uid") or f"uid-of-{place}"
    return replace(document, manifest={**manifest, "metadata": metadata})
