"""All reduced objects of a cluster, with the nodes that are ending, and constants that readers and writers share.

Karpenter's objects of all API versions are converted to current NodePools and EC2NodeClasses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.karpenter.conversion.converting import convert, needing_attention
from nodesmith.model.karpenter.nodepools import PROVISIONER, PROVISIONER_UID
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.nodeclasses.nodeclasses import NODE_TEMPLATE
from nodesmith.observation.reduction.devices import ReducedDeviceClaim, ReducedSlice
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.reduction.volumes import ReducedClaim, ReducedClass, ReducedCsiNode, ReducedVolume
from nodesmith.observation.volumes import Volumes


# Attachments of other nodes are not in a snapshot: a cluster has thousands, and no decision waits for their
# removal.
@dataclass(frozen=True, slots=True)
class ReducedAttachment:
    """A VolumeAttachment. `volume` is the PersistentVolume, empty for a volume that is defined inline in a pod."""

    name: str
    node: str
    volume: str


def reduce_attachment(manifest: Manifest) -> ReducedAttachment:
    """Reduce a VolumeAttachment. Raises KeyError or TypeError for content that no API server accepts."""
    spec = manifest["spec"]
    volume = (spec.get("source") or {}).get("persistentVolumeName")
    return ReducedAttachment(str(manifest["metadata"]["name"]), str(spec["nodeName"]), str(volume or ""))


def ended_by(node: Manifest) -> str:
    """Return a reduced Node's name if it is being deleted or disrupted, else an empty string."""
    metadata, taints = node["metadata"], (node.get("spec") or {}).get("taints") or ()
    ends = "deletionTimestamp" in metadata or any(taint.get("key") == DISRUPTED.key for taint in taints)
    return str(metadata["name"]) if ends else ""


def ended_by_claim(claim: Manifest) -> str:
    """Return the name of a reduced NodeClaim's Node if the NodeClaim is being deleted, else an empty string."""
    name = (claim.get("status") or {}).get("nodeName")
    return str(name) if name and "deletionTimestamp" in claim["metadata"] else ""


def ending_nodes(nodes: Iterable[Manifest], nodeclaims: Iterable[Manifest]) -> frozenset[str]:
    """Return the names of the Nodes that are ending."""
    return frozenset((*map(ended_by, nodes), *map(ended_by_claim, nodeclaims))) - {""}


def held_volumes(
    attachments: Iterable[ReducedAttachment],
    ending: frozenset[str],
    pods: Iterable[ReducedPod],
    volumes: Volumes,
) -> Iterator[Mapping[str, Any]]:
    """Yield the volumes that are attached to ending nodes, as in the snapshot, with the pods there that use them."""
    relevant = sorted((a for a in attachments if a.node in ending), key=lambda each: each.name)
    users = _users(pods, {attachment.node for attachment in relevant}, volumes) if relevant else {}
    for attachment in relevant:
        yield {
            "node": attachment.node,
            "volume": attachment.volume or attachment.name,
            "pods": sorted(users.get((attachment.node, attachment.volume), ())),
        }


def _users(
    pods: Iterable[ReducedPod], nodes: set[str], volumes: Volumes
) -> Mapping[tuple[str, str], list[str]]:
    users: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        for mount in pod.claims if pod.node in nodes else ():
            claim = volumes.claim(mount.key)
            if claim is not None and claim.volume:
                users.setdefault((pod.node, claim.volume), []).append(f"{pod.namespace}/{pod.name}")
    return users


FORMAT = "nodesmith-snapshot"
VERSION, DELTA_VERSION = 4, 5
UNSCHEDULABLE, NOMINATED, DELETING, NOT_READY, STARTING = 1, 2, 4, 8, 16
"""Bits of a pod's `flags`."""
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, RecursionError)
"""Errors that reading an object may raise if its content is such that no API server accepts it."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The reduced objects of a cluster, in any order. `problems` describe objects that could not be reduced.

    `departures` is node → when the last pod left it, in seconds since 1970, as far as that was observed. `growths` is
    the same for workloads (`Kind/namespace/name`): when one without missing pods began to want more. `karpenter_wrote`
    is when Karpenter last wrote an object, as its managedFields show, and of which kind; else empty.
    """

    pods: Sequence[ReducedPod] = ()
    nodes: Sequence[Manifest] = ()
    daemonsets: Sequence[Manifest] = ()
    nodepools: Sequence[Manifest] = ()
    nodeclasses: Sequence[Manifest] = ()
    nodeclaims: Sequence[Manifest] = ()
    provisioners: Sequence[Manifest] = ()
    awsnodetemplates: Sequence[Manifest] = ()
    persistentvolumeclaims: Sequence[ReducedClaim] = ()
    persistentvolumes: Sequence[ReducedVolume] = ()
    storageclasses: Sequence[ReducedClass] = ()
    csinodes: Sequence[ReducedCsiNode] = ()
    namespaces: Sequence[Manifest] = ()
    poddisruptionbudgets: Sequence[Manifest] = ()
    volumeattachments: Sequence[ReducedAttachment] = ()
    limitranges: Sequence[Manifest] = ()
    runtimeclasses: Sequence[Manifest] = ()
    nodeoverlays: Sequence[Manifest] = ()
    podtemplates: Sequence[Manifest] = ()
    capacitybuffers: Sequence[Manifest] = ()
    deployments: Sequence[Manifest] = ()
    replicasets: Sequence[Manifest] = ()
    statefulsets: Sequence[Manifest] = ()
    jobs: Sequence[Manifest] = ()
    capacityquotas: Sequence[Manifest] = ()
    provisioningrequests: Sequence[Manifest] = ()
    resourceclaims: Sequence[ReducedDeviceClaim] = ()
    resourceclaimtemplates: Sequence[ReducedDeviceClaim] = ()
    deviceclasses: Sequence[Manifest] = ()
    resourceslices: Sequence[ReducedSlice] = ()
    podgroups: Sequence[Manifest] = ()
    workloads: Sequence[Manifest] = ()
    schedulerpodgroups: Sequence[Manifest] = ()
    problems: Sequence[str] = ()
    departures: Mapping[str, int] = field(default_factory=dict)
    leases: Sequence[Manifest] = ()
    karpenter_wrote: tuple[str, str] = ("", "")
    growths: Mapping[str, int] = field(default_factory=dict)
    labels_kept: Sequence[str] = ()
    """Keys of pods' labels that the snapshot keeps although no selector uses them: for cost allocation."""


_NODE_POOL, _NODE_CLASS = ("karpenter.sh/v1", "NodePool"), ("karpenter.k8s.aws/v1", "EC2NodeClass")
_PROVISIONER, _NODE_TEMPLATE = (
    ("karpenter.sh/v1alpha5", "Provisioner"),
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
)


class ConvertedManifests(NamedTuple):
    """All NodePools and EC2NodeClasses. Those without a uid are not objects of the cluster.

    `problems` are the changes of the conversion that need attention.
    """

    nodepools: Sequence[Manifest]
    nodeclasses: Sequence[Manifest]
    problems: Sequence[str]


def converted_manifests(observed: Observed) -> ConvertedManifests:
    """Convert all objects together. Objects that need no conversion stay as they were reduced.

    NodePools that other software serves are not converted, because nodesmith does not report their mistakes.
    """
    foreign = [nodepool for nodepool in observed.nodepools if is_foreign(nodepool)]
    nodepools = [nodepool for nodepool in observed.nodepools if not is_foreign(nodepool)]
    reduced = [*nodepools, *observed.nodeclasses, *observed.provisioners, *observed.awsnodetemplates]
    renamed = [
        *_with_kind(nodepools, *_NODE_POOL),
        *_with_kind(observed.nodeclasses, *_NODE_CLASS),
        *_with_kind(observed.provisioners, *_PROVISIONER),
        *_with_kind(observed.awsnodetemplates, *_NODE_TEMPLATE),
    ]
    conversion = convert(renamed)
    manifests: dict[str, list[Manifest]] = {"NodePool": [], "EC2NodeClass": []}
    manifests["NodePool"] += foreign
    for converted in conversion.objects:
        original, manifest = reduced[converted.number], converted.manifest
        old = renamed[converted.number]
        if manifest is old:
            manifests[manifest["kind"]].append(original)
            continue
        metadata = _owning(manifest, original)
        is_template = old["kind"] == _NODE_TEMPLATE[1] and metadata["name"] == old["metadata"]["name"]
        if is_template:
            metadata = _annotated(metadata, NODE_TEMPLATE, metadata["name"])
        is_shown = "status" in original and (is_template or manifest["kind"] == "NodePool")
        status = {"status": original["status"]} if is_shown else {}
        manifests[manifest["kind"]].append({**manifest, **status, "metadata": metadata})
    return ConvertedManifests(
        manifests["NodePool"],
        manifests["EC2NodeClass"],
        [str(change) for change in needing_attention(conversion.changes)],
    )


def _owning(manifest: Manifest, original: Manifest) -> Manifest:
    """Return the metadata of a converted object, with the uid of the Provisioner that owns the NodeClaims, if any."""
    metadata: Manifest = manifest["metadata"]
    annotations, uid = metadata.get("annotations") or {}, original["metadata"].get("uid")
    if manifest["kind"] != "NodePool" or PROVISIONER not in annotations or "uid" in metadata or not uid:
        return metadata
    return _annotated(metadata, PROVISIONER_UID, uid)


def _annotated(metadata: Manifest, key: str, value: str) -> Manifest:
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), key: value}}


def _with_kind(manifests: Iterable[Manifest], api_version: str, kind: str) -> Iterator[Manifest]:
    """Return objects with apiVersion and kind, which the items of a list from the API server do not have."""
    return ({**manifest, "apiVersion": api_version, "kind": kind} for manifest in manifests)
