"""Write a snapshot: pods are grouped by shape, and volumes are resolved to what they require of nodes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from nodesmith.model.ec2.capacity import ATTACHABLE
from nodesmith.model.karpenter.nodeclaimobjects import shown_pod_event
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.kubernetes.shapereading import NAME_LABEL
from nodesmith.observation.devices import DeviceClaims
from nodesmith.observation.observed import (
    DELETING,
    FORMAT,
    NOMINATED,
    NOT_READY,
    STARTING,
    UNSCHEDULABLE,
    VERSION,
    Observed,
    converted_manifests,
    ending_nodes,
    held_volumes,
)
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.volumes import Attachments, Reach, Volumes
from nodesmith.observation.workloads import admission, expected_pods, grown_workloads, pod_templates

_COMPRESSION = 6
_PIECE = 1000
"""How many elements of a list are written at a time."""


def encode(cluster: str, taken_at: datetime, observed: Observed) -> bytes:
    """Write a whole snapshot. `taken_at` is kept to the millisecond."""
    return compressed(written(cluster, taken_at, observed).document)


class SnapshotDocument(NamedTuple):
    """A whole snapshot as a document, and what `deltas` compares later states with."""

    document: dict[str, Any]
    context: Context
    pods: Groups


def written(cluster: str, taken_at: datetime, observed: Observed) -> SnapshotDocument:
    """Return a whole snapshot before it is compressed."""
    context = Context(observed, taken_at)
    names = sorted(
        {
            *map(_name, observed.nodes),
            *(p.bound_or_nominated_node for p in observed.pods if p.bound_or_nominated_node),
        }
    )
    nodes = sorted(observed.nodes, key=_name)
    pods = grouped(context, observed.pods)
    index_of = {name: index for index, name in enumerate(names)}
    document = {
        **header(cluster, taken_at, VERSION),
        **sections(observed, context),
        "nodeNames": names,
        "nodes": list(map(context.node, nodes)),
        "podEvents": _pod_events(observed, nodes),
        "pods": [
            {"shape": shape_of(kind), **columns(group, index_of, pods.bound_by_volumes)}
            for kind, group in pods.groups
        ],
        "nodeclaims": sorted(observed.nodeclaims, key=_name),
        "poddisruptionbudgets": sorted(observed.poddisruptionbudgets, key=_text),
    }
    return SnapshotDocument(document, context, pods)


def header(cluster: str, taken_at: datetime, version: int) -> dict[str, Any]:
    """Return the fields with which every document begins."""
    at = taken_at.astimezone(UTC).isoformat(timespec="milliseconds")
    return {"format": FORMAT, "version": version, "cluster": cluster, "takenAt": at}


def sections(observed: Observed, context: Context) -> dict[str, Any]:
    """Return the small parts of a document: all but nodes, NodeClaims, budgets and pods.

    Of pods, it suffices to pass one of each shape, the newest of each DaemonSet, and all with volumes or devices; all
    if CapacityBuffers refer to custom resources, or Namespaces ask for proactive scale-up.
    """
    attachments = context.attachments
    karpenters = converted_manifests(observed)
    ending = ending_nodes(observed.nodes, observed.nodeclaims)
    document = {
        "daemonsets": sorted(context.daemons, key=_text),
        "podtemplates": sorted(context.templates, key=_text),
        "capacitybuffers": sorted(observed.capacitybuffers, key=_text),
        "nodepools": sorted(karpenters.nodepools, key=_name),
        "nodeclasses": sorted(karpenters.nodeclasses, key=_name),
        "capacityquotas": sorted(observed.capacityquotas, key=_name),
        "namespaces": _namespaces(observed, selected_namespace_keys(context.shapes)),
        "attachLimits": {driver: dict(limits) for driver, limits in attachments.of_new_nodes.stated.items()},
        "volumeattachments": list(
            held_volumes(observed.volumeattachments, ending, observed.pods, context.volumes)
        ),
        **_requests(observed),
        "problems": sorted((*observed.problems, *karpenters.problems)),
    }
    if any(pod.devices for pod in observed.pods):
        document["devices"] = context.claims.document()
    if observed.nodeoverlays:
        document["nodeoverlays"] = sorted(observed.nodeoverlays, key=_name)
    signs = [(str(lease["renewed"]), _holder_text(lease)) for lease in observed.leases]
    if observed.karpenter_wrote[0]:
        at, kind = observed.karpenter_wrote
        signs.append((at, f"wrote objects of kind {kind}"))
    if signs:
        document["karpenter"] = dict(zip(("seenAt", "sign"), max(signs), strict=True))
    if context.grown:
        document["grownworkloads"] = context.grown
    return document


class Context:
    """What the rows of pods and nodes depend on in addition to the pod or node itself."""

    def __init__(self, observed: Observed, taken_at: datetime) -> None:
        self.volumes = Volumes(
            observed.persistentvolumeclaims, observed.persistentvolumes, observed.storageclasses
        )
        self.attachments = Attachments(observed.pods, self.volumes, observed.csinodes, observed.nodes)
        self.claims = DeviceClaims(
            observed.resourceclaims,
            observed.resourceclaimtemplates,
            observed.deviceclasses,
            observed.resourceslices,
        )
        admitted = admission(observed)
        self.daemons = list(expected_pods(observed))
        self.templates = list(pod_templates(observed))
        grown = grown_workloads(observed, taken_at)
        self.grown = [{**workload, "pod": admitted(workload["pod"])} for workload in grown]
        planned = [entry["pod"] for entry in (*self.templates, *self.grown)]
        self.shapes = frozenset((*(p.shape for p in observed.pods), *map(_text, (*self.daemons, *planned))))
        self.selected = selected_keys(self.shapes) | frozenset(observed.labels_kept)
        self.guarded = guarded_keys(observed.poddisruptionbudgets)
        self._others = sorted(self.selected)
        self._keys = {name: sorted(self.selected | keys) for name, keys in self.guarded.items()}

    def kind(self, pod: ReducedPod) -> tuple[Kind, str]:
        """Return a pod's kind, and why volumes keep it off every node, empty if they do not."""
        keys = self._keys.get(pod.namespace, self._others)
        labels = tuple((key, pod.labels[key]) for key in keys if key in pod.labels)
        if not is_tied(pod):
            return Kind(pod.shape, labels, "", (), ""), ""
        mounts = bool(pod.claims)  # also for pods on a node: the node may end, but their volumes stay
        reach = self.volumes.reach(pod) if mounts else Reach()
        refusal = reach.refusal or (self.attachments.refusal(pod) if mounts else "")
        claimed = self.claims.resolved(pod.namespace, pod.devices, is_bound=bool(pod.node))
        count = self.attachments.count(pod)
        return Kind(pod.shape, labels, reach.terms, count, claimed if pod.devices else ""), refusal

    def node(self, node: Manifest) -> Manifest:
        """Return a node with the places for volumes that it offers."""
        attachable = self.attachments.offered(node)
        if not attachable:
            return node
        status = node.get("status") or {}
        allocatable = {**(status.get("allocatable") or {}), **attachable}
        return {**node, "status": {**status, "allocatable": allocatable}}


def is_tied(pod: ReducedPod) -> bool:
    """Return whether a pod's kind depends on other objects: it has volumes or claims devices."""
    return bool(pod.claims or pod.devices)


def compressed(document: Mapping[str, Any]) -> bytes:
    """Return the gzip of a document's JSON, equal for equal documents.

    The text of a large cluster has a hundred MB. It is written in pieces, so that it never exists as a whole.
    """
    deflater = zlib.compressobj(_COMPRESSION, wbits=31)
    return b"".join((*(deflater.compress(piece.encode()) for piece in _pieces(document)), deflater.flush()))


def _pieces(document: Mapping[str, Any]) -> Iterator[str]:
    before = "{"
    for name, value in sorted(document.items()):
        yield f"{before}{_text(name)}:"
        before = ","
        if not (isinstance(value, list) and value):
            yield _text(value)
            continue
        for start in range(0, len(value), _PIECE):
            yield ("," if start else "[") + _text(value[start : start + _PIECE])[1:-1]
        yield "]"
    yield "}"


def _holder_text(lease: Manifest) -> str:
    metadata = lease["metadata"]
    return f"held the lease {metadata['namespace']}/{metadata['name']}"


def _requests(observed: Observed) -> dict[str, Any]:
    """Return the ProvisioningRequests and groups of pods as a part of the document, empty if there are none."""
    requests = {
        "provisioningrequests": sorted(observed.provisioningrequests, key=_text),
        "podgroups": sorted(
            (*observed.podgroups, *observed.workloads, *observed.schedulerpodgroups), key=_text
        ),
    }
    return {name: objects for name, objects in requests.items() if objects}


def _namespaces(observed: Observed, keys: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the namespaces with the labels that affinity terms select by, empty if no term selects namespaces."""
    if not keys:
        return {}
    pods = (pod.namespace for pod in observed.pods)
    others = (*observed.daemonsets, *observed.podtemplates, *observed.capacitybuffers)
    owners = (str(manifest["metadata"]["namespace"]) for manifest in others)
    labels: dict[str, dict[str, str]] = {name: {NAME_LABEL: name} for name in (*pods, *owners)}
    labels.update({_name(n): n["metadata"].get("labels") or {} for n in observed.namespaces})
    return {name: {k: v for k, v in own.items() if k in keys} for name, own in labels.items()}


def _pod_events(observed: Observed, nodes: Iterable[Manifest]) -> list[int]:
    """Return when a pod last came to each node, began to leave it or left it, in seconds since 1970; 0 if unknown.

    Departures from before the watch began are known from the NodeClaims, in whose status they were recorded.
    """
    latest = dict(observed.departures)
    for pod in observed.pods:
        if pod.moved > latest.get(pod.node, 0):
            latest[pod.node] = pod.moved
    written = {
        provider_id: int(at.timestamp())
        for claim in observed.nodeclaims
        if (at := shown_pod_event(claim)) is not None and (provider_id := claim["status"].get("providerID"))
    }
    ids = ((node, (node.get("spec") or {}).get("providerID")) for node in nodes)
    return [max(latest.get(_name(node), 0), written.get(provider_id, 0)) for node, provider_id in ids]


class Kind(NamedTuple):
    """What pods of a group have in common: shape, selected labels, reach and numbers of volumes, claimed devices."""

    shape: str
    labels: tuple[tuple[str, str], ...]
    terms: str
    volumes: tuple[tuple[str, int], ...]
    devices: str


class Groups(NamedTuple):
    """The pods of a cluster by their kind, in the order of a snapshot."""

    groups: list[tuple[Kind, list[ReducedPod]]]
    bound_by_volumes: Mapping[str, tuple[Kind, str]]
    """for pods with volumes or devices, by `namespace/name`: their kind, and why volumes keep them off every node"""


def grouped(context: Context, pods: Iterable[ReducedPod]) -> Groups:
    """Return pods in groups."""
    groups: dict[Kind, list[ReducedPod]] = {}
    tied = {}
    for pod in pods:
        kind, refusal = context.kind(pod)
        groups.setdefault(kind, []).append(pod)
        if is_tied(pod):
            tied[key_of(pod)] = kind, refusal
    return Groups(sorted(groups.items(), key=lambda item: item[0]), tied)


def key_of(pod: ReducedPod) -> str:
    """Return `namespace/name`."""
    return f"{pod.namespace}/{pod.name}"


def shape_of(kind: Kind) -> dict[str, Any]:
    """Return the manifest of a group's shape."""
    manifest: dict[str, Any] = json.loads(kind.shape)
    if kind.labels:
        manifest["metadata"]["labels"] = dict(kind.labels)
    if kind.terms:
        manifest["spec"]["volumeNodeAffinity"] = json.loads(kind.terms)
    if kind.volumes:
        manifest["spec"]["attachments"] = {ATTACHABLE + driver: n for driver, n in kind.volumes}
    if kind.devices:
        manifest["spec"]["deviceClaims"] = json.loads(kind.devices)
    return manifest


def columns(
    pods: Iterable[ReducedPod], index_of: Mapping[str, int], tied: Mapping[str, tuple[Kind, str]]
) -> dict[str, Any]:
    """Return the pods of a group as columns, sorted by name."""
    pods = sorted(pods, key=lambda pod: pod.name)
    rare = {
        "refusals": {pod.name: reason for pod in pods if is_tied(pod) and (reason := tied[key_of(pod)][1])},
        "deletions": {pod.name: pod.deletion for pod in pods if pod.deletion is not None},
        "started": {pod.name: pod.started for pod in pods if pod.started is not None},
        "startups": {pod.name: pod.startup_minutes for pod in pods if pod.startup_minutes},
    }
    return {
        "names": [pod.name for pod in pods],
        "created": [pod.created for pod in pods],
        "nodes": [index_of.get(pod.bound_or_nominated_node, -1) for pod in pods],
        "flags": [_flags(pod) for pod in pods],
        **{name: values for name, values in rare.items() if values},
    }


def _flags(pod: ReducedPod) -> int:
    flags = UNSCHEDULABLE * pod.unschedulable | NOMINATED * bool(pod.nominated_node)
    return flags | DELETING * pod.deleting | NOT_READY * (not pod.ready) | STARTING * pod.starting


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# Labels that no selector in the cluster uses (`job-name`, `statefulset.kubernetes.io/pod-name`, `pod-template-
# hash`, a workflow's run id …) cannot affect decisions, but would give every pod a shape of its own.
_KEY_LISTS = ("matchLabelKeys", "mismatchLabelKeys")


def selected_keys(shapes: Iterable[str]) -> frozenset[str]:
    """Return the pod label keys that any spread constraint or pod (anti-)affinity term in these manifests uses."""
    return frozenset().union(*map(_keys_of, shapes))


def guarded_keys(budgets: Iterable[Mapping[str, Any]]) -> Mapping[str, frozenset[str]]:
    """Return the pod label keys that PodDisruptionBudgets use, by namespace, since they only select in their own."""
    keys: dict[str, frozenset[str]] = {}
    for budget in budgets:
        namespace = budget["metadata"]["namespace"]
        selector = (budget.get("spec") or {}).get("selector") or {}
        keys[namespace] = keys.get(namespace, frozenset()).union(_selector_keys(selector))
    return keys


def selected_namespace_keys(shapes: Iterable[str]) -> frozenset[str]:
    """Return the namespace label keys that any namespaceSelector in these manifests uses."""
    return frozenset().union(*map(_namespace_keys_of, shapes))


@lru_cache(maxsize=8192)
def _keys_of(shape: str) -> frozenset[str]:
    spec = json.loads(shape).get("spec") or {}
    return frozenset(key for constraint in _constraints(spec) for key in _keys(constraint))


@lru_cache(maxsize=8192)
def _namespace_keys_of(shape: str) -> frozenset[str]:
    if "namespaceSelector" not in shape:
        return frozenset()
    spec = json.loads(shape).get("spec") or {}
    selectors = (term.get("namespaceSelector") for term in _constraints(spec))
    return frozenset(key for selector in selectors for key in _selector_keys(selector or {}))


def _constraints(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec.get("topologySpreadConstraints") or ()
    for part in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(part) or {}
        yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}


def _keys(constraint: Mapping[str, Any]) -> Iterator[str]:
    yield from _selector_keys(constraint.get("labelSelector") or {})
    for name in _KEY_LISTS:
        yield from constraint.get(name) or ()


def _selector_keys(selector: Mapping[str, Any]) -> Iterator[str]:
    yield from selector.get("matchLabels") or ()
    yield from (str(expression.get("key")) for expression in selector.get("matchExpressions") or ())
