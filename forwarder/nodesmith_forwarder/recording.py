"""What changes while the forwarder runs, and snapshots that cost what has changed: deltas of a base.

A small cluster's snapshot is written whole. A large one's is written whole as a base, and after that as a delta, which
has everything that has changed since (`nodesmith.observation.decoding`). The next base is written when the delta has
become large, when the base is old, and when something has changed that most pods depend on: the keys of labels that
selectors use, or the namespaces that they select.

    a change                              costs
    a pod without volumes and devices     itself
    a Node, NodeClaim or budget           itself; what the next line says, if any pod has volumes of limited drivers
    anything else                         the objects of other kinds, one pod of each shape, and pods with volumes
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.encoding import (
    Context,
    Kind,
    columns,
    compressed,
    header,
    is_tied,
    sections,
    shape_of,
    written,
)
from nodesmith.observation.mirror import BUDGETS, NODECLAIMS, NODES, PODS
from nodesmith.observation.observed import DELTA_VERSION, Observed
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith_forwarder.changes import COMPARED, ChangedObject, Changes, Part

SMALL_BYTES = 256 * 2**10
"""A snapshot of at most this size is always written whole, and is read with one request."""
_OLDEST = timedelta(minutes=30)
"""The age at which a base is replaced when something changes, in case it was lost or damaged."""
_LARGEST_PART = 8
"""A delta of more than this part of its base becomes a new base."""
_ALWAYS_SMALL = 64 * 2**10
_HEADER = frozenset({"format", "version", "cluster", "takenAt"})
_LARGE = frozenset({*_HEADER, "nodeNames", "podEvents", *(kind.name for kind in COMPARED)})


class Encoded(NamedTuple):
    """A snapshot to write: the object at the cluster's key, and before that the base, if it is a new one."""

    head: bytes
    base: bytes = b""
    digest: str = ""


@dataclass(slots=True)
class _Base:
    """The base, and what the last delta has found out about objects that depend on others."""

    digest: str
    size: int
    at: datetime
    context: Context
    index_of: Mapping[Kind, int]
    kinds: list[Kind]
    tied: Mapping[str, tuple[Kind, str]]
    sections: Mapping[str, Any]
    offered: Mapping[str, Mapping[str, int]]
    now: Context
    now_sections: Mapping[str, Any]
    now_tied: Mapping[str, ReducedPod] = field(default_factory=dict)
    """pods with volumes or devices whose kind is not that in the base"""
    now_nodes: dict[str, Manifest] = field(default_factory=dict)
    """nodes that offer other places for volumes than in the base"""


class Recorder:
    """Writes a cluster's snapshots. `whole` returns everything, and has `changes` noted from then on."""

    def __init__(
        self, cluster: str, changes: Changes, whole: Callable[[], Observed], small_bytes: int = SMALL_BYTES
    ) -> None:
        self._cluster, self._changes, self._whole, self._small_bytes = cluster, changes, whole, small_bytes
        self._base: _Base | None = None

    def forget(self) -> None:
        """Write the next snapshot whole, because the base was not written."""
        self._base = None
        self._changes.stop()

    def encoded(self, taken_at: datetime, part: Part | None) -> Encoded:
        """Return the snapshot to write."""
        head = self.delta(taken_at, part)
        if head is not None:
            return Encoded(head)
        self._base = None
        everything = replace(self._whole(), labels_kept=self._changes.labels_kept)
        made = written(self._cluster, taken_at, everything)
        data = compressed(made.document)
        if len(data) <= self._small_bytes:
            self.forget()
            return Encoded(data)
        kept = {name: made.document[name] for name in made.document.keys() - _LARGE}
        offered = (
            (node["metadata"]["name"], made.context.attachments.offered(node)) for node in everything.nodes
        )
        self._base = _Base(
            digest=sha256(data).hexdigest(),
            size=len(data),
            at=taken_at,
            context=made.context,
            index_of={kind: index for index, (kind, _) in enumerate(made.pods.groups)},
            kinds=[kind for kind, _ in made.pods.groups],
            tied=made.pods.tied,
            sections=kept,
            offered={name: places for name, places in offered if places},
            now=made.context,
            now_sections=kept,
        )
        self._changes.selects_namespaces = bool(kept["namespaces"])
        nothing = Part({kind.name: {} for kind in COMPARED}, {}, None, {}, 0, ((), ("", "")))
        return Encoded(
            compressed(self._document(self._base, taken_at, nothing) or {}), data, self._base.digest
        )

    def again(self, taken_at: datetime, part: Part | None) -> bytes | None:
        """Return the object to compare with the one that was written, None if a new base is due."""
        return self.encoded(taken_at, part).head if self._base is None else self.delta(taken_at, part)

    def delta(self, taken_at: datetime, part: Part | None) -> bytes | None:
        """Return the delta of the base, None if there is to be a new base."""
        base = self._base
        if base is None or part is None or taken_at - base.at > _OLDEST:
            return None
        if part.rest is not None and not self._renew(base, part, part.rest, taken_at):
            return None
        document = self._document(base, taken_at, part)
        data = compressed(document) if document is not None else b""
        is_small = len(data) <= max(base.size // _LARGEST_PART, _ALWAYS_SMALL)
        return data if document is not None and is_small else None

    def _renew(self, base: _Base, part: Part, rest: Observed, taken_at: datetime) -> bool:
        """Read again what more than one pod or node depends on; return whether a delta can still express it."""
        context = Context(rest, taken_at)
        found = sections(rest, context)
        is_as_before = (context.selected, context.guarded) == (base.context.selected, base.context.guarded)
        if not is_as_before or found["namespaces"] != base.sections["namespaces"]:
            return False
        base.now, base.now_sections = context, found
        base.now_tied = {
            key: pod for key, pod in part.tied.items() if context.kind(pod) != base.tied.get(key)
        }
        base.now_nodes = {}
        for node in rest.nodes if part.tied or base.offered else ():
            name = node["metadata"]["name"]
            if context.attachments.offered(node) != base.offered.get(name, {}):
                base.now_nodes[name] = node
        self._changes.encoded(part)
        return True

    def _document(self, base: _Base, taken_at: datetime, part: Part) -> dict[str, Any] | None:
        pods = self._pods(base, part)
        if pods is None:
            return None
        gone, put, tied = pods
        names = sorted(
            {
                pod.bound_or_nominated_node
                for group in put.values()
                for pod in group
                if pod.bound_or_nominated_node
            }
        )
        index_of = {name: index for index, name in enumerate(names)}
        groups = []
        for kind in sorted({*gone, *put}):
            at = base.index_of.get(kind)
            about = {"at": bisect_left(base.kinds, kind), "shape": shape_of(kind)}
            if at is not None:
                about = {"at": at, "gone": sorted(gone.get(kind, ()))}
            groups.append({**about, **columns(put.get(kind, ()), index_of, tied)})
        nodes = part.touched[NODES.name]
        others = {name: ChangedObject(None, node) for name, node in base.now_nodes.items()}
        others |= {
            name: ChangedObject(None, t.after) if t.after else t
            for name, t in nodes.items()
            if name in others
        }
        return {
            "base": base.digest,
            **header(self._cluster, taken_at, DELTA_VERSION),
            "nodeNames": names,
            "pods": groups,
            "nodes": _changed({**nodes, **others}, base.now.node),
            "podEvents": part.events,
            "nodeclaims": _changed(part.touched[NODECLAIMS.name]),
            "poddisruptionbudgets": _changed(part.touched[BUDGETS.name]),
            "sections": {n: v for n, v in base.now_sections.items() if base.sections.get(n) != v},
            "without": sorted(base.sections.keys() - base.now_sections.keys()),
        }

    def _pods(self, base: _Base, part: Part) -> _Moved | None:
        moved = _Moved({}, {}, {})
        touched = part.touched[PODS.name]
        others = {key: ChangedObject(pod, pod) for key, pod in base.now_tied.items() if key not in touched}
        for key, (before, after) in {**touched, **others}.items():
            is_moving = key in base.tied or (after is not None and is_tied(after))
            if before == after and not is_moving:
                continue
            if before is not None:
                kind = base.tied[key][0] if key in base.tied else base.context.kind(before)[0]
                if kind not in base.index_of:
                    return None
                moved.gone.setdefault(kind, []).append(before.name)
            if after is not None:
                moved.tied[key] = kind, _ = base.now.kind(after)
                moved.put.setdefault(kind, []).append(after)
        return moved


class _Moved(NamedTuple):
    """The names of pods that groups of the base lose, and the pods that they or new groups get."""

    gone: dict[Kind, list[str]]
    put: dict[Kind, list[ReducedPod]]
    tied: dict[str, tuple[Kind, str]]


def _changed(
    touched: Mapping[str, ChangedObject], shown: Callable[[Manifest], Manifest] = lambda manifest: manifest
) -> dict[str, Any]:
    changed = {key: each for key, each in sorted(touched.items()) if each.before != each.after}
    return {
        "put": [shown(each.after) for each in changed.values() if each.after is not None],
        "gone": [key for key, each in changed.items() if each.after is None],
    }
