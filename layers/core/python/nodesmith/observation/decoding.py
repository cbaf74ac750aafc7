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

A large cluster's snapshot is a **delta**, followed by the whole snapshot that it changes, its **base**: two gzip
members. A delta has everything that has changed since its base, which it names by its SHA-256:

    base          the digest of the base's bytes
    pods          groups as above. `at` is the index of the base's group that changes, and `gone` the names of those of
                  its pods that changed or went; a group with a `shape` is new, and comes before the one at `at`
    nodes         `put` are manifests, `gone` names; nodeclaims and poddisruptionbudgets likewise
    podEvents     for nodes on which they may have changed: name → seconds since 1970, 0 if unknown
    sections      all other fields that have changed; `without` are the names of those that are no longer there
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.keys import snapshot_base_key
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Manifest, Pod
from nodesmith.model.kubernetes.shapereading import Namespaces
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import DELTA_VERSION, FORMAT, UNREADABLE, VERSION, Observed
from nodesmith.observation.parts import (
    Group,
    Parts,
    assembled,
    budgets_of,
    groups_of,
    moment_of,
    namespaces_of,
    nodes_of,
    parts_of,
    pods_of,
    unreadable_part,
)
from nodesmith.observation.reduction.devices import text_of

__all__ = ["LARGEST_BYTES", "UNREADABLE", "Observed", "decode", "encode", "inflated"]

_READABLE = range(1, VERSION + 1)
"""Version 1 has no volumes; its pods with volumes are refused (see `parse_shape`). Version 2 has no namespaces and does
not count volumes. Version 3 has no PodDisruptionBudgets, no attachments and no readiness of pods. Version 5 are
deltas."""
_GZIP = b"\x1f\x8b"
LARGEST_BYTES = 128 * 2**20
"""Maximum decompressed size, so that it fits into a function's memory. 300,000 pods on 15,000 nodes with their
NodeClaims take 76 MiB."""


def decode(data: bytes) -> Snapshot:
    """Read a snapshot. Pods are sorted by shape, then by name; nodes are sorted by name.

    An object that cannot be read becomes an entry in `problems`. Raises Rejected, with what was found, for bytes that
    are truncated, damaged, something else, or of another format version.
    """
    return Reader().read(data)


def _document(text: bytes) -> dict[str, Any]:
    """Return the document of a text. Raises Rejected unless it is one that this release reads."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_a_snapshot(text, str(error)) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        actual = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise Rejected(f"snapshot: expected the field 'format' to be {FORMAT!r}, found {actual!r}")
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
    readable, newest = ((DELTA_VERSION,), DELTA_VERSION) if _is_delta(document) else (_READABLE, VERSION)
    return version in readable or (
        isinstance(version, int) and isinstance(oldest, int) and oldest <= newest < version
    )


def _is_delta(document: Manifest) -> bool:
    return isinstance(document.get("base"), str)


def inflated(data: bytes) -> bytes:
    """Decompress at most `LARGEST_BYTES`, because a few kilobytes can expand to any size. Raises Rejected."""
    return _inflated_first(data)[0]


def _inflated_first(data: bytes) -> tuple[bytes, bytes]:
    """Decompress like `inflated`, and return what follows the first gzip member as well."""
    if not data.startswith(_GZIP):
        raise _not_a_snapshot(data, "not gzip")
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
    return text, inflater.unused_data


def _not_a_snapshot(data: bytes, reason: str) -> Rejected:
    beginning = f"{len(data)} bytes that begin with {data[:16]!r}"
    return Rejected(f"snapshot: expected gzip of a JSON object, found {beginning} ({reason})")


# Even in an idle cluster, a snapshot is written every minute and every function reads it. Decompressing and
# comparing the text takes a twentieth of the time of parsing it.
_TAKEN_AT = b'"takenAt":"'
_LARGE_BYTES = 8 * 2**20
"""A whole snapshot with a longer text takes the place of a base in memory."""


class Reader:
    """Reads snapshots like `decode`, and keeps the last one and the last base, whose content must not be modified."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Snapshot] | None = None
        self._base: _Base | None = None

    def read(self, data: bytes) -> Snapshot:
        """Read a snapshot. Raises Rejected like `decode`."""
        text, behind = _inflated_first(data)
        taken_at, digest = _parted(text)
        if taken_at is not None and self._last is not None and self._last[0] == digest:
            return replace(self._last[1], taken_at=taken_at)
        self._last = None  # so that two snapshots are never in memory at once
        size, document = len(text), _document(text)
        del text
        if _is_delta(document):
            parts = self._base_from(str(document["base"]), behind).changed_by(document)
        else:
            self._base = self._base if size < _LARGE_BYTES else None
            parts = parts_of(document)
        snapshot = assembled(parts)
        if snapshot.taken_at == taken_at:
            self._last = digest, snapshot
        return snapshot

    def completed(self, head: bytes, cluster: str, get: Callable[[str], bytes | None]) -> bytes:
        """Return the bytes of a snapshot, given the object at its key: a delta gets the bytes of its base.

        `get` returns the object at a key, None if there is none. It is not called for a base that was read before.
        Raises Rejected if the base does not exist.
        """
        digest = _base_of(head)
        if digest is None:
            return head
        if self._base is not None and self._base.digest == digest:
            return head + self._base.data
        key = snapshot_base_key(cluster, digest)
        base = get(key)
        if base is None:
            raise Rejected(
                f"snapshot: it is a delta of {key}, which does not exist: the forwarder writes another within half an"
                " hour if the cluster changes; restart it to have one now"
            )
        return head + base

    def _base_from(self, digest: str, data: bytes) -> _Base:
        if self._base is None or self._base.digest != digest or self._base.data != data:
            self._base = None
            if not data:
                raise Rejected(f"snapshot: it is a delta alone, expected its base {digest} behind it")
            digest_of_data = hashlib.sha256(data).hexdigest()
            if digest_of_data != digest:
                raise Rejected(
                    f"snapshot: truncated or damaged, its base has {len(data)} bytes with the digest {digest_of_data}, "
                    f"the delta is one of {digest}"
                )
            document = _document(inflated(data))
            if _is_delta(document):
                raise Rejected("snapshot: its base is a delta, expected a whole snapshot")
            self._base = _Base.of(digest, data, parts_of(document))
        return self._base


_DELTA = re.compile(rb'\{"base":"([0-9a-f]{64})"')


def _base_of(head: bytes) -> str | None:
    """Return the digest of the base that a snapshot's object names, None for a whole snapshot or anything else."""
    try:
        match = _DELTA.match(zlib.decompressobj(wbits=31).decompress(head, 80))
    except zlib.error:
        return None
    return match[1].decode() if match else None


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


@dataclass(frozen=True, slots=True)
class _Base:
    """A base that was read, with what each of its deltas needs."""

    digest: str
    data: bytes
    parts: Parts
    namespaces: Namespaces | None
    nodes: Mapping[str, Node | str]
    nodeclaims: Mapping[str, Manifest]
    budgets: Mapping[str, tuple[str, Any]]
    """`namespace/name` → the text of its manifest, which is its rank, and its element of `Parts.budgets`"""

    @classmethod
    def of(cls, digest: str, data: bytes, parts: Parts) -> _Base:
        """Raises Rejected."""
        try:
            return cls(
                digest=digest,
                data=data,
                parts=parts,
                namespaces=namespaces_of(parts.rest),
                nodes=dict(parts.nodes),
                nodeclaims={str(manifest["metadata"]["name"]): manifest for manifest in parts.nodeclaims},
                budgets={_key(manifest): (text_of(manifest), (manifest, b)) for manifest, b in parts.budgets},
            )
        except UNREADABLE as error:
            raise unreadable_part(error) from None

    def changed_by(self, delta: dict[str, Any]) -> Parts:
        """Return the parts of the snapshot that is the base with a delta. Raises Rejected."""
        try:
            if delta["cluster"] != self.parts.rest["cluster"]:
                raise Rejected(
                    f"snapshot: field 'cluster' is {delta['cluster']!r}, that of its base is "
                    f"{self.parts.rest['cluster']!r}"
                )
            sections = {
                name: value for name, value in self.parts.rest.items() if name not in delta["without"]
            }
            return Parts(
                rest={**sections, **delta["sections"], "takenAt": delta["takenAt"]},
                groups=list(self._groups(delta)),
                nodes=self._nodes(delta["nodes"], delta["podEvents"]),
                nodeclaims=_by_name(self.nodeclaims, delta["nodeclaims"]),
                budgets=self._budgets(delta["poddisruptionbudgets"]),
            )
        except UNREADABLE as error:
            raise unreadable_part(error) from None

    def _groups(self, delta: Manifest) -> Iterator[Group]:
        names, moments, at = [*delta["nodeNames"], ""], dict[int, datetime](), 0
        groups = self.parts.groups
        for changed in delta["pods"]:
            if not at <= changed["at"] <= len(groups):
                raise ValueError(f"group {changed['at']} after {at} of {len(groups)}")
            yield from groups[at : changed["at"]]
            at = changed["at"]
            if "shape" in changed:
                yield from groups_of([changed], delta["nodeNames"], self.namespaces)
                continue
            shape, pods, problem = groups[at]
            at += 1
            if shape is None:
                yield shape, pods, problem
                continue
            removed = {f"{shape.namespace}/{name}" for name in changed["gone"]}
            remaining = [pod for pod in pods if pod.key not in removed] + pods_of(
                changed, shape, names, moments
            )
            if remaining:
                yield shape, tuple(sorted(remaining, key=_pod_key)), ""
        yield from groups[at:]

    def _nodes(self, changed: Manifest, events: Mapping[str, int]) -> list[tuple[str, Node | str]]:
        names = [str(manifest["metadata"]["name"]) for manifest in changed["put"]]
        put = dict(nodes_of(changed["put"], (events.get(name, 0) for name in names)))
        nodes: dict[str, Node | str] = {**self.nodes, **put}
        for name, node in put.items():
            before = self.nodes.get(name)
            if name not in events and isinstance(node, Node) and isinstance(before, Node):
                nodes[name] = replace(node, last_pod_event_at=before.last_pod_event_at)
        for name in changed["gone"]:
            nodes.pop(name, None)
        for name, event in events.items():
            before = nodes.get(name)
            if isinstance(before, Node) and name not in put:
                nodes[name] = replace(before, last_pod_event_at=moment_of(event) if event else None)
        return sorted(nodes.items(), key=lambda item: item[0]) if put else list(nodes.items())

    def _budgets(self, changed: Manifest) -> list[Any]:
        budgets = {**self.budgets, **{_key(m): (text_of(m), (m, b)) for m, b in budgets_of(changed["put"])}}
        for key in changed["gone"]:
            budgets.pop(key, None)
        return [budget for _, budget in sorted(budgets.values(), key=lambda item: item[0])]


def _by_name(base: Mapping[str, Manifest], changed: Manifest) -> list[Manifest]:
    objects = {**base, **{str(manifest["metadata"]["name"]): manifest for manifest in changed["put"]}}
    for name in changed["gone"]:
        objects.pop(name, None)
    return [objects[name] for name in sorted(objects)]


def _key(budget: Manifest) -> str:
    return f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"


def _pod_key(pod: Pod) -> str:
    return pod.key
