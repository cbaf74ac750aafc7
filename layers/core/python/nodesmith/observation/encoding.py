"""Write a snapshot: pods are grouped by shape, and volumes are resolved to what they require of nodes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nodesmith.model.ec2.attachablevolumes import ATTACHABLE
from nodesmith.model.karpenter.nodeclaimobjects import shown_pod_event
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.kubernetes.shapereading import NAME_LABEL
from nodesmith.observation.attachments import Attachments
from nodesmith.observation.daemonpods import expected_pods
from nodesmith.observation.endingnodes import ending_nodes, held_volumes
from nodesmith.observation.observed import (
    DELETING,
    FORMAT,
    NOMINATED,
    NOT_READY,
    UNSCHEDULABLE,
    VERSION,
    Observed,
)
from nodesmith.observation.olderversions import todays
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.selectedlabels import guarded_keys, selected_keys, selected_namespace_keys
from nodesmith.observation.volumes import Reach, Volumes

_COMPRESSION = 6


def encode(cluster: str, taken_at: datetime, observed: Observed) -> bytes:
    """Write a snapshot. `taken_at` is kept to the millisecond."""
    volumes = Volumes(observed.persistentvolumeclaims, observed.persistentvolumes, observed.storageclasses)
    attachments = Attachments(observed.pods, volumes, observed.csinodes, observed.nodes)
    names = sorted({*map(_name, observed.nodes), *(p.whereabouts for p in observed.pods if p.whereabouts)})
    index_of = {name: index for index, name in enumerate(names)}
    ending = ending_nodes(observed.nodes, observed.nodeclaims)
    daemons = list(expected_pods(observed))
    shapes = {*(pod.shape for pod in observed.pods), *map(_text, daemons)}
    nodes = sorted(observed.nodes, key=_name)
    karpenters = todays(observed)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "cluster": cluster,
        "takenAt": taken_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "nodeNames": names,
        "nodes": [_node(node, attachments.offered(node)) for node in nodes],
        "podEvents": _pod_events(observed, nodes),
        "pods": list(_groups(observed, volumes, attachments, selected_keys(shapes), index_of)),
        "daemonsets": sorted(daemons, key=_text),
        "nodepools": sorted(karpenters.nodepools, key=_name),
        "nodeclasses": sorted(karpenters.nodeclasses, key=_name),
        "nodeclaims": sorted(observed.nodeclaims, key=_name),
        "namespaces": _namespaces(observed, selected_namespace_keys(shapes)),
        "poddisruptionbudgets": sorted(observed.poddisruptionbudgets, key=_text),
        "attachLimits": {driver: dict(known) for driver, known in attachments.of_new_nodes.stated.items()},
        "volumeattachments": list(held_volumes(observed.volumeattachments, ending, observed.pods, volumes)),
        "problems": sorted((*observed.problems, *karpenters.problems)),
    }
    return gzip.compress(_text(document).encode(), _COMPRESSION, mtime=0)


def _namespaces(observed: Observed, keys: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the namespaces with the labels that affinity terms select by, empty if no term selects namespaces."""
    if not keys:
        return {}
    pods = (pod.namespace for pod in observed.pods)
    daemons = (str(daemon["metadata"]["namespace"]) for daemon in observed.daemonsets)
    labels: dict[str, dict[str, str]] = {name: {NAME_LABEL: name} for name in (*pods, *daemons)}
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


class _Kind(NamedTuple):
    """What pods must have in common to form a group: shape, selected labels, reach of volumes and their numbers."""

    shape: str
    labels: tuple[tuple[str, str], ...]
    terms: str
    volumes: tuple[tuple[str, int], ...]


def _groups(
    observed: Observed,
    volumes: Volumes,
    attachments: Attachments,
    selected: frozenset[str],
    index_of: Mapping[str, int],
) -> Iterator[Mapping[str, Any]]:
    others = sorted(selected)
    guarded = {
        name: sorted(selected | keys) for name, keys in guarded_keys(observed.poddisruptionbudgets).items()
    }
    groups: dict[_Kind, list[tuple[ReducedPod, str]]] = {}
    for pod in observed.pods:
        keys = guarded.get(pod.namespace, others)
        labels = tuple((key, pod.labels[key]) for key in keys if key in pod.labels)
        mounts = bool(pod.claims)  # also for pods on a node: the node may end, but their volumes stay
        reach = volumes.reach(pod) if mounts else Reach()
        refusal = reach.refusal or (attachments.refusal(pod) if mounts else "")
        kind = _Kind(pod.shape, labels, reach.terms, attachments.count(pod))
        groups.setdefault(kind, []).append((pod, refusal))
    for kind, members in sorted(groups.items(), key=lambda item: item[0]):
        members.sort(key=lambda member: member[0].name)
        refusals = {pod.name: why for pod, why in members if why}
        pods = [pod for pod, _ in members]
        deletions = {pod.name: pod.deletion for pod in pods if pod.deletion is not None}
        started = {pod.name: pod.started for pod in pods if pod.started is not None}
        startups = {pod.name: pod.startup_minutes for pod in pods if pod.startup_minutes}
        rare = {"refusals": refusals, "deletions": deletions, "started": started, "startups": startups}
        yield {
            "shape": _manifest(kind),
            **_columns(pods, index_of),
            **{name: values for name, values in rare.items() if values},
        }


def _manifest(kind: _Kind) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(kind.shape)
    if kind.labels:
        manifest["metadata"]["labels"] = dict(kind.labels)
    if kind.terms:
        manifest["spec"]["volumeNodeAffinity"] = json.loads(kind.terms)
    if kind.volumes:
        manifest["spec"]["attachments"] = {ATTACHABLE + driver: n for driver, n in kind.volumes}
    return manifest


def _node(node: Manifest, attachable: Mapping[str, int]) -> Manifest:
    if not attachable:
        return node
    status = node.get("status") or {}
    return {**node, "status": {**status, "allocatable": {**(status.get("allocatable") or {}), **attachable}}}


def _columns(pods: Sequence[ReducedPod], index_of: Mapping[str, int]) -> dict[str, Any]:
    return {
        "names": [pod.name for pod in pods],
        "created": [pod.created for pod in pods],
        "nodes": [index_of.get(pod.whereabouts, -1) for pod in pods],
        "flags": [_flags(pod) for pod in pods],
    }


def _flags(pod: ReducedPod) -> int:
    flags = UNSCHEDULABLE * pod.unschedulable | NOMINATED * bool(pod.nominated_node)
    return flags | DELETING * pod.deleting | NOT_READY * (not pod.ready)


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
