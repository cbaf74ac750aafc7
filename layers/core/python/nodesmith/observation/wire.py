"""The snapshot as bytes: gzip of one JSON object, equal bytes for an equal cluster.

Shapes are written once, each with its pods as columns: `names`, `created` (seconds since 1970), `nodes` (index into
`nodeNames`, -1 for none; of a pod that is only promised a node, as `flags` say, that one) and `flags`. Nodes and
Karpenter's objects are reduced manifests, sorted by name. Volumes are not in it: from where a pending pod's can be
reached is in its shape (`spec.volumeNodeAffinity`); why they keep a pod from every node is in `refusals`, by its name.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.namespaces import NAME_LABEL, Namespaces
from nodesmith.model.nodes import Node, parse_node
from nodesmith.model.pods import Manifest, Pod
from nodesmith.model.shapereading import parse_shape
from nodesmith.model.shapes import Shape
from nodesmith.model.snapshot import Snapshot
from nodesmith.model.times import parse_time
from nodesmith.observation.podreduction import ReducedPod
from nodesmith.observation.selection import selected_keys, selected_namespace_keys
from nodesmith.observation.volumereduction import ReducedClaim, ReducedClass, ReducedVolume
from nodesmith.observation.volumes import Reach, Volumes

FORMAT = "nodesmith-snapshot"
VERSION = 3
_READABLE = {1, 2, VERSION}
"""The first knew no volumes: its pods that have any are refused (see `parse_shape`). The second knew no namespaces."""
_KNOWS_NAMESPACES = 3
_UNSCHEDULABLE, _NOMINATED, _DELETING = 1, 2, 4
SOMEWHERE = "a node that the snapshot does not name"
"""Where a nominated pod is promised room, by snapshots of releases that did not say."""
_COMPRESSION = 6
_GZIP = b"\x1f\x8b"
LARGEST_BYTES = 64 * 2**20
"""Decompressed; 20,000 pods on 1,000 nodes take 3 MiB, and what is read must fit into a function's memory."""
UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Observed:
    """A cluster's reduced objects, in any order. `problems` are objects that could not even be reduced."""

    pods: Sequence[ReducedPod] = ()
    nodes: Sequence[Manifest] = ()
    daemonsets: Sequence[Manifest] = ()
    nodepools: Sequence[Manifest] = ()
    nodeclasses: Sequence[Manifest] = ()
    nodeclaims: Sequence[Manifest] = ()
    persistentvolumeclaims: Sequence[ReducedClaim] = ()
    persistentvolumes: Sequence[ReducedVolume] = ()
    storageclasses: Sequence[ReducedClass] = ()
    namespaces: Sequence[Manifest] = ()
    problems: Sequence[str] = ()


def encode(cluster: str, taken_at: datetime, observed: Observed) -> bytes:
    """Write a snapshot. `taken_at` is kept to the millisecond."""
    names = sorted(
        {_name(n) for n in observed.nodes} | {where for p in observed.pods if (where := _where(p))}
    )
    shapes = {*(pod.shape for pod in observed.pods), *map(_text, observed.daemonsets)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "cluster": cluster,
        "takenAt": taken_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "nodeNames": names,
        "nodes": sorted(observed.nodes, key=_name),
        "pods": list(
            _groups(observed, selected_keys(shapes), {name: index for index, name in enumerate(names)})
        ),
        "daemonsets": sorted(observed.daemonsets, key=_text),
        "nodepools": sorted(observed.nodepools, key=_name),
        "nodeclasses": sorted(observed.nodeclasses, key=_name),
        "nodeclaims": sorted(observed.nodeclaims, key=_name),
        "namespaces": _namespaces(observed, selected_namespace_keys(shapes)),
        "problems": sorted(observed.problems),
    }
    return gzip.compress(_text(document).encode(), _COMPRESSION, mtime=0)


def _namespaces(observed: Observed, keys: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """Give the namespaces with those of their labels that affinity chooses them by; none where it chooses none."""
    if not keys:
        return {}
    pods = (pod.namespace for pod in observed.pods)
    daemons = (str(daemon["metadata"]["namespace"]) for daemon in observed.daemonsets)
    labels: dict[str, dict[str, str]] = {name: {NAME_LABEL: name} for name in (*pods, *daemons)}
    labels.update({_name(n): n["metadata"].get("labels") or {} for n in observed.namespaces})
    return {name: {k: v for k, v in own.items() if k in keys} for name, own in labels.items()}


def _groups(
    observed: Observed, selected: Collection[str], index_of: Mapping[str, int]
) -> Iterator[Mapping[str, Any]]:
    keys = sorted(selected)
    volumes = Volumes(observed.persistentvolumeclaims, observed.persistentvolumes, observed.storageclasses)
    groups: dict[tuple[str, tuple[tuple[str, str], ...], str], list[tuple[ReducedPod, str]]] = {}
    for pod in observed.pods:
        labels = tuple((key, pod.labels[key]) for key in keys if key in pod.labels)
        reach = volumes.reach(pod) if pod.claims and pod.is_provisionable else Reach()
        groups.setdefault((pod.shape, labels, reach.terms), []).append((pod, reach.refusal))
    for (shape, labels, terms), members in sorted(groups.items(), key=lambda item: item[0]):
        members.sort(key=lambda member: member[0].name)
        refusals = {pod.name: why for pod, why in members if why}
        yield {
            "shape": _manifest(shape, labels, terms),
            **_columns([pod for pod, _ in members], index_of),
            **({"refusals": refusals} if refusals else {}),
        }


def _manifest(shape: str, labels: Iterable[tuple[str, str]], terms: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(shape)
    if labels:
        manifest["metadata"]["labels"] = dict(labels)
    if terms:
        manifest["spec"]["volumeNodeAffinity"] = json.loads(terms)
    return manifest


def _columns(pods: Sequence[ReducedPod], index_of: Mapping[str, int]) -> dict[str, Any]:
    return {
        "names": [pod.name for pod in pods],
        "created": [pod.created for pod in pods],
        "nodes": [index_of.get(_where(pod), -1) for pod in pods],
        "flags": [_flags(pod) for pod in pods],
    }


def _flags(pod: ReducedPod) -> int:
    nominated = bool(pod.nominated_node)
    return _UNSCHEDULABLE * pod.unschedulable | _NOMINATED * nominated | _DELETING * pod.deleting


def _where(pod: ReducedPod) -> str:
    return pod.node or pod.nominated_node


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def decode(data: bytes) -> Snapshot:
    """Read a snapshot; pods come by shape, then by name, nodes by name.

    One object that cannot be read becomes an entry of `problems`. Raises Rejected, saying what was found, for bytes
    that are cut short, damaged, something else, or of another format version.
    """
    document = _document(data)
    try:
        problems = [str(problem) for problem in document["problems"]]
        known = Namespaces(document["namespaces"]) if document["version"] >= _KNOWS_NAMESPACES else None
        return Snapshot(
            cluster=str(document["cluster"]),
            taken_at=parse_time(document["takenAt"]),
            pods=tuple(_pods(document["pods"], document["nodeNames"], known, problems)),
            nodes=tuple(_nodes(document["nodes"], problems)),
            daemonsets=tuple(parse_shape(manifest, known) for manifest in document["daemonsets"]),
            nodepools=tuple(document["nodepools"]),
            nodeclasses=tuple(document["nodeclasses"]),
            nodeclaims=tuple(document["nodeclaims"]),
            problems=tuple(problems),
        )
    except UNREADABLE as error:
        raise Rejected(f"snapshot: a part is missing or wrong ({error!r})") from None


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(_inflated(data))
    except (ValueError, RecursionError) as error:
        began = f"{len(data)} bytes that begin with {data[:16]!r}"
        raise Rejected(f"snapshot: expected gzip of a JSON object, found {began} ({error})") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise Rejected(f"snapshot: expected the field 'format' to be {FORMAT!r}, found {found!r}")
    if document.get("version") not in _READABLE:
        raise Rejected(
            f"snapshot: field 'version' is {document.get('version')!r}, this release reads 1 to {VERSION}: "
            "deploy the forwarder and the functions from the same release"
        )
    return document


def _inflated(data: bytes) -> bytes:
    """Decompress, but not without end: a few kilobytes can be made to blow up to any size."""
    if not data.startswith(_GZIP):
        raise ValueError("not gzip")
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, LARGEST_BYTES)
    except zlib.error as error:
        raise Rejected(f"snapshot: cut short or damaged, {len(data)} bytes were found ({error})") from None
    if inflater.unconsumed_tail:
        raise Rejected(f"snapshot: more than {LARGEST_BYTES >> 20} MiB once decompressed, refused to read on")
    if not inflater.eof:
        raise Rejected(f"snapshot: cut short or damaged, {len(data)} bytes were found (the end is missing)")
    return text


def _nodes(manifests: Iterable[Manifest], problems: list[str]) -> Iterator[Node]:
    for manifest in manifests:
        try:
            yield parse_node(manifest)
        except UNREADABLE as error:
            problems.append(f"Node/{_name(manifest)}: cannot be read, the node is left out: {error}")


def _pods(
    groups: Iterable[Manifest], node_names: Sequence[str], known: Namespaces | None, problems: list[str]
) -> Iterator[Pod]:
    moments: dict[int, datetime] = {}
    names = [*node_names, ""]  # so that -1 is no node
    for group in groups:
        try:
            yield from _group(group, parse_shape(group["shape"], known), names, moments)
        except UNREADABLE as error:
            named = ", ".join(map(str, group["names"][:3]))
            problems.append(f"Pod/{named} and its like cannot be read: {error}")


def _group(
    group: Manifest, shape: Shape, node_names: Sequence[str], moments: dict[int, datetime]
) -> list[Pod]:
    pods = []
    refusals = group.get("refusals") or {}
    columns = zip(group["names"], group["created"], group["nodes"], group["flags"], strict=True)
    for name, created, node, flags in columns:
        moment = moments.get(created)
        if moment is None:
            moment = moments[created] = datetime.fromtimestamp(created, UTC)
        pods.append(
            Pod(
                f"{shape.namespace}/{name}",
                shape,
                moment,
                "" if flags & _NOMINATED else node_names[node],
                bool(flags & _UNSCHEDULABLE),
                (node_names[node] or SOMEWHERE) if flags & _NOMINATED else "",
                bool(flags & _DELETING),
                str(refusals.get(name, "")),
            )
        )
    return pods
