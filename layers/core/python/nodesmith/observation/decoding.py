"""Read snapshots from bytes: gzip of one JSON object, with equal bytes for equal clusters.

Each shape is written once, with its pods as columns: `names`, `created` (seconds since 1970), `nodes` (index into
`nodeNames`, -1 for none; for a nominated pod, as `flags` shows, the nominated node) and `flags`. Properties that few
pods have are maps by pod name: `refusals`, `deletions`, `started` and `startups`. `deletions` and `started` are also in
seconds since 1970. Nodes, PodDisruptionBudgets and Karpenter's objects are reduced manifests, sorted by name.
`podEvents` is the time of the last pod event of each node. Volumes are not included. Instead, a shape has the locations
from which its pods' volumes can be reached (`spec.volumeNodeAffinity`) and the number of volumes to attach
(`spec.attachments`, to compare with a node's `status.allocatable`, or with `attachLimits` for new nodes). `refusals`
has the reasons why volumes keep a pod off every node. `volumeattachments` has the volumes that are still attached to
ending nodes. In the same way as volumes, a shape has what its pods claim of devices (`spec.deviceClaims`); `devices` is
there while pods claim any: how many of each kind are where, and how many of them are free.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.capacity import AttachLimits
from nodesmith.model.karpenter.ownership import KarpenterSign, is_foreign
from nodesmith.model.kubernetes.devices import ClusterDevices, parse_devices
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget, parse_budget
from nodesmith.model.kubernetes.nodes import Node, VolumeAttachment, parse_node
from nodesmith.model.kubernetes.pods import GrownWorkload, Manifest, Pod, PodTemplate, Shape
from nodesmith.model.kubernetes.provisioningrequests import ProvisioningRequest, parse_request
from nodesmith.model.kubernetes.shapereading import Namespaces, parse_shape
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import (
    DELETING,
    FORMAT,
    NOMINATED,
    NOT_READY,
    UNREADABLE,
    UNSCHEDULABLE,
    VERSION,
    Observed,
)
from nodesmith.observation.podgroups import with_pod_groups

__all__ = ["LARGEST_BYTES", "UNREADABLE", "Observed", "decode", "encode", "inflated", "read"]

_READABLE = range(1, VERSION + 1)
"""Version 1 has no volumes; its pods with volumes are refused (see `parse_shape`). Version 2 has no namespaces and does
not count volumes. Version 3 has no PodDisruptionBudgets, no attachments and no readiness of pods."""
_KNOWS_NAMESPACES = 3
SOMEWHERE = "a node that the snapshot does not name"
"""The nominated node of a pod in snapshots of releases that did not include it."""
_GZIP = b"\x1f\x8b"
LARGEST_BYTES = 64 * 2**20
"""Maximum decompressed size, so that it fits into a function's memory. 20,000 pods on 1,000 nodes take 3 MiB."""


def decode(data: bytes) -> Snapshot:
    """Read a snapshot. Pods are sorted by shape, then by name; nodes are sorted by name.

    An object that cannot be read becomes an entry in `problems`. Raises Rejected, with what was found, for bytes that
    are truncated, damaged, something else, or of another format version.
    """
    return read(inflated(data))


def read(text: bytes) -> Snapshot:
    """Read the text of a snapshot, see `decode`."""
    document = _document(text)
    try:
        problems = [str(problem) for problem in document["problems"]]
        known = Namespaces(document["namespaces"]) if document["version"] >= _KNOWS_NAMESPACES else None
        snapshot = Snapshot(
            cluster=str(document["cluster"]),
            taken_at=parse_time(document["takenAt"]),
            pods=tuple(_pods(document["pods"], document["nodeNames"], known, problems)),
            nodes=tuple(_nodes(document["nodes"], document.get("podEvents") or (), problems)),
            daemonsets=tuple(parse_shape(manifest, known) for manifest in document["daemonsets"]),
            capacitybuffers=tuple(_buffers(document.get("capacitybuffers") or ())),
            podtemplates=dict(_templates(document.get("podtemplates") or (), known)),
            nodepools=tuple(each for each in document["nodepools"] if not is_foreign(each)),
            nodeclasses=tuple(document["nodeclasses"]),
            nodeclaims=tuple(each for each in document["nodeclaims"] if not is_foreign(each)),
            quotas=tuple(document.get("capacityquotas") or ()),
            foreign_nodepools=tuple(filter(is_foreign, document["nodepools"])),
            budgets=tuple(_budgets(document.get("poddisruptionbudgets") or (), problems)),
            attachments=tuple(
                VolumeAttachment(str(held["node"]), str(held["volume"]), tuple(map(str, held["pods"])))
                for held in document.get("volumeattachments") or ()
            ),
            nodeoverlays=tuple(document.get("nodeoverlays") or ()),
            requests=tuple(_requests(document.get("provisioningrequests") or (), problems)),
            devices=_devices(document.get("devices"), problems),
            grown=tuple(_grown(document.get("grownworkloads") or (), known)),
            attach_limits=_attach_limits(document.get("attachLimits") or {}),
            karpenter=_sign(document.get("karpenter")),
            problems=tuple(problems),
        )
        groups = document.get("podgroups") or ()
        return with_pod_groups(snapshot, groups) if groups else snapshot
    except UNREADABLE as error:
        raise Rejected(f"snapshot: a part is missing or wrong ({error!r})") from None


def _devices(manifest: Manifest | None, problems: list[str]) -> ClusterDevices | None:
    if manifest is None:
        return None
    try:
        return parse_devices(manifest)
    except UNREADABLE as error:
        problems.append(f"the cluster's devices cannot be read and are left out: {error!r}")
        return None


def _sign(document: Manifest | None) -> KarpenterSign | None:
    return KarpenterSign(parse_time(document["seenAt"]), str(document["sign"])) if document else None


def _attach_limits(stated: Manifest) -> AttachLimits:
    return AttachLimits(
        FrozenMap(
            {
                str(driver): FrozenMap({str(kind): int(most) for kind, most in known.items()})
                for driver, known in stated.items()
            }
        )
    )


def _document(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _odd(text, str(error)) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise Rejected(f"snapshot: expected the field 'format' to be {FORMAT!r}, found {found!r}")
    if not _is_readable(document):
        raise Rejected(
            f"snapshot: field 'version' is {document.get('version')!r}, this release reads 1 to {VERSION}: "
            "deploy the forwarder and the functions from the same release"
        )
    return document


def _is_readable(document: Manifest) -> bool:
    """Return whether this release can read the document. Later versions state the oldest version that can read them."""
    version = document.get("version")
    oldest = document.get("readableFrom", version)
    return version in _READABLE or (
        isinstance(version, int) and isinstance(oldest, int) and oldest <= VERSION < version
    )


def inflated(data: bytes) -> bytes:
    """Decompress at most `LARGEST_BYTES`, because a few kilobytes can expand to any size. Raises Rejected."""
    if not data.startswith(_GZIP):
        raise _odd(data, "not gzip")
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, LARGEST_BYTES)
    except zlib.error as error:
        raise Rejected(f"snapshot: truncated or damaged, found {len(data)} bytes ({error})") from None
    if inflater.unconsumed_tail:
        raise Rejected(
            f"snapshot: more than {LARGEST_BYTES >> 20} MiB when decompressed, which is too large to read"
        )
    if not inflater.eof:
        raise Rejected(f"snapshot: truncated or damaged, found {len(data)} bytes (the end is missing)")
    return text


def _odd(found: bytes, why: str) -> Rejected:
    began = f"{len(found)} bytes that begin with {found[:16]!r}"
    return Rejected(f"snapshot: expected gzip of a JSON object, found {began} ({why})")


def _nodes(manifests: Iterable[Manifest], pod_events: Iterable[int], problems: list[str]) -> Iterator[Node]:
    for manifest, event in zip(manifests, chain(pod_events, repeat(0)), strict=False):
        try:
            yield parse_node(manifest, _moment(event) if event else None)
        except UNREADABLE as error:
            problems.append(f"Node/{manifest['metadata']['name']}: cannot be read and is left out: {error}")


def _buffers(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield CapacityBuffers. They may be invalid, but each has a name and a namespace, which decisions rely on."""
    for manifest in manifests:
        about = manifest["metadata"]
        identity = {"name": str(about["name"]), "namespace": str(about["namespace"])}
        yield {**manifest, "metadata": {**about, **identity}}


def _templates(manifests: Iterable[Manifest], known: Namespaces | None) -> Iterator[tuple[str, PodTemplate]]:
    for manifest in manifests:
        about = manifest["metadata"]
        template = PodTemplate(
            kind=str(manifest["kind"]),
            name=str(about["name"]),
            shape=parse_shape(manifest["pod"], known),
            generation=int(about["generation"]),
            replicas=int(manifest.get("replicas") or 0),
            images=tuple(map(str, manifest.get("images") or ())),
        )
        yield template.key, template


def _grown(manifests: Sequence[Manifest], known: Namespaces | None) -> Iterator[GrownWorkload]:
    for manifest, (_, template) in zip(manifests, _templates(manifests, known), strict=True):
        grown_at = datetime.fromtimestamp(manifest["grown"], UTC)
        yield GrownWorkload(template, int(manifest["lacking"]), grown_at)


def _budgets(manifests: Iterable[Manifest], problems: list[str]) -> Iterator[PodDisruptionBudget]:
    for manifest in manifests:
        try:
            yield parse_budget(manifest)
        except UNREADABLE as error:
            about = manifest["metadata"]
            problems.append(
                f"PodDisruptionBudget/{about['namespace']}/{about['name']}: cannot be read and is left out: {error}"
            )


def _requests(manifests: Iterable[Manifest], problems: list[str]) -> Iterator[ProvisioningRequest]:
    for manifest in manifests:
        try:
            yield parse_request(manifest)
        except UNREADABLE as error:
            about = manifest["metadata"]
            problems.append(
                f"ProvisioningRequest/{about['namespace']}/{about['name']}: cannot be read and is left out: {error!r}"
            )


def _pods(
    groups: Iterable[Manifest], node_names: Sequence[str], known: Namespaces | None, problems: list[str]
) -> Iterator[Pod]:
    moments: dict[int, datetime] = {}
    names = [*node_names, ""]  # index -1 means no node
    for group in groups:
        try:
            yield from _group(group, parse_shape(group["shape"], known), names, moments)
        except UNREADABLE as error:
            named = ", ".join(map(str, group["names"][:3]))
            problems.append(f"Pod/{named} and pods of the same shape cannot be read: {error}")


def _group(
    group: Manifest, shape: Shape, node_names: Sequence[str], moments: dict[int, datetime]
) -> list[Pod]:
    pods = []
    rare = ("refusals", "deletions", "started", "startups")
    refusals, deletions, started, startups = (group.get(name) or {} for name in rare)
    is_rare = bool(refusals or deletions or started or startups)
    columns = zip(group["names"], group["created"], group["nodes"], group["flags"], strict=True)
    for name, created, node, flags in columns:
        moment = moments.get(created)
        if moment is None:
            moment = moments[created] = datetime.fromtimestamp(created, UTC)
        key = f"{shape.namespace}/{name}"
        if not (flags or is_rare):  # nearly all pods; this branch halves their cost
            pods.append(Pod(key, shape, moment, node_names[node]))
            continue
        pods.append(
            Pod(
                key,
                shape,
                moment,
                "" if flags & NOMINATED else node_names[node],
                bool(flags & UNSCHEDULABLE),
                (node_names[node] or SOMEWHERE) if flags & NOMINATED else "",
                bool(flags & DELETING),
                str(refusals.get(name, "")),
                _moment(deletions.get(name)) if deletions else None,
                _moment(started.get(name)) if started else None,
                not flags & NOT_READY,
                int(startups.get(name, 0)),
            )
        )
    return pods


def _moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


# Even in an idle cluster, a snapshot is written every minute and every function reads it. Decompressing and
# comparing the text takes a twentieth of the time of parsing it.
_TAKEN_AT = b'"takenAt":"'


class Reader:
    """Reads snapshots like `decode`, and keeps the last one, whose content must not be modified."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Snapshot] | None = None

    def read(self, data: bytes) -> Snapshot:
        """Read a snapshot. Raises Rejected like `decode`."""
        text = inflated(data)
        taken_at, digest = _parted(text)
        if taken_at is None:
            return read(text)
        if self._last is not None and self._last[0] == digest:
            return replace(self._last[1], taken_at=taken_at)
        self._last = None  # so that two snapshots are never in memory at once
        snapshot = read(text)
        if snapshot.taken_at == taken_at:
            self._last = digest, snapshot
        return snapshot


def _parted(text: bytes) -> tuple[datetime | None, bytes]:
    """Return the last `takenAt` in a text, which is the snapshot's, and a digest of the text around it."""
    start = text.rfind(_TAKEN_AT) + len(_TAKEN_AT)
    end = text.find(b'"', start)
    if start < len(_TAKEN_AT) or end < 0:
        return None, b""
    view = memoryview(text)
    digest = hashlib.sha256(view[:start])
    digest.update(view[end:])
    try:
        return parse_time(text[start:end].decode()), digest.digest()
    except ValueError:
        return None, b""
