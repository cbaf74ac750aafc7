"""Snapshots whose size depends on what has changed: a base, then deltas of it.

A small cluster's snapshot is always written whole. A large cluster's snapshot is first written whole, as a base, and
then as a delta, which holds everything that has changed since (`nodesmith.observation.decoding`). A new base is written
when the delta has become large, when the base is old, and when something has changed that most pods depend on: the
label keys that selectors use, or the namespaces that they select.

    a change of                           encodes again
    a pod without volumes and devices     that pod
    a Node, NodeClaim or budget           that object; also the next line's, if any pod has volumes of limited drivers
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
    """A snapshot to write: the object at the cluster's key, and a new base, if any, which is written first."""

    head: bytes
    base: bytes = b""
    digest: str = ""


@dataclass(slots=True)
class _Base:
    """The base, and what the last delta found about objects that depend on others."""

    digest: str
    size: int
    at: datetime
    context: Context
    index_of: Mapping[Kind, int]
    kinds: list[Kind]
    tied: Mapping[str, tuple[Kind, str]]
    sections: Mapping[str, Any]
    offered: Mapping[str, Mapping[str, int]]
    current: Context
    current_sections: Mapping[str, Any]
    moved_tied: Mapping[str, ReducedPod] = field(default_factory=dict)
    """pods with volumes or devices whose kind is not that in the base"""
    changed_nodes: dict[str, Manifest] = field(default_factory=dict)
    """nodes that offer other places for volumes than in the base"""


class Recorder:
    """Encodes a cluster's snapshots. `whole` returns everything, and `changes` are noted from then on."""

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
        snapshot = written(self._cluster, taken_at, everything)
        data = compressed(snapshot.document)
        if len(data) <= self._small_bytes:
            self.forget()
            return Encoded(data)
        small_sections = {name: snapshot.document[name] for name in snapshot.document.keys() - _LARGE}
        offered = (
            (node["metadata"]["name"], snapshot.context.attachments.offered(node))
            for node in everything.nodes
        )
        self._base = _Base(
            digest=sha256(data).hexdigest(),
            size=len(data),
            at=taken_at,
            context=snapshot.context,
            index_of={kind: index for index, (kind, _) in enumerate(snapshot.pods.groups)},
            kinds=[kind for kind, _ in snapshot.pods.groups],
            tied=snapshot.pods.bound_by_volumes,
            sections=small_sections,
            offered={name: places for name, places in offered if places},
            current=snapshot.context,
            current_sections=small_sections,
        )
        self._changes.selects_namespaces = bool(small_sections["namespaces"])
        empty_part = Part({kind.name: {} for kind in COMPARED}, {}, None, {}, 0, ((), ("", "")))
        return Encoded(
            compressed(self._document(self._base, taken_at, empty_part) or {}), data, self._base.digest
        )

    def rewritten(self, taken_at: datetime, part: Part | None) -> bytes | None:
        """Return the object to compare with the one that was written, or None if a new base is due."""
        return self.encoded(taken_at, part).head if self._base is None else self.delta(taken_at, part)

    def delta(self, taken_at: datetime, part: Part | None) -> bytes | None:
        """Return the delta of the base, or None if the next snapshot must be a new base."""
        base = self._base
        if base is None or part is None or taken_at - base.at > _OLDEST:
            return None
        if part.shared_state is not None and not self._renew(base, part, part.shared_state, taken_at):
            return None
        document = self._document(base, taken_at, part)
        data = compressed(document) if document is not None else b""
        is_small = len(data) <= max(base.size // _LARGEST_PART, _ALWAYS_SMALL)
        return data if document is not None and is_small else None

    def _renew(self, base: _Base, part: Part, shared_state: Observed, taken_at: datetime) -> bool:
        """Encode the shared state again; return whether a delta can still express it."""
        context = Context(shared_state, taken_at)
        current_sections = sections(shared_state, context)
        is_as_before = (context.selected, context.guarded) == (base.context.selected, base.context.guarded)
        if not is_as_before or current_sections["namespaces"] != base.sections["namespaces"]:
            return False
        base.current, base.current_sections = context, current_sections
        base.moved_tied = {
            key: pod for key, pod in part.tied.items() if context.kind(pod) != base.tied.get(key)
        }
        base.changed_nodes = {}
        for node in shared_state.nodes if part.tied or base.offered else ():
            name = node["metadata"]["name"]
            if context.attachments.offered(node) != base.offered.get(name, {}):
                base.changed_nodes[name] = node
        self._changes.encoded(part)
        return True

    def _document(self, base: _Base, taken_at: datetime, part: Part) -> dict[str, Any] | None:
        pods = self._pods(base, part)
        if pods is None:
            return None
        removed, added, tied = pods
        names = sorted(
            {
                pod.bound_or_nominated_node
                for group in added.values()
                for pod in group
                if pod.bound_or_nominated_node
            }
        )
        index_of = {name: index for index, name in enumerate(names)}
        groups = []
        for kind in sorted({*removed, *added}):
            base_index = base.index_of.get(kind)
            entry = {"at": bisect_left(base.kinds, kind), "shape": shape_of(kind)}
            if base_index is not None:
                entry = {"at": base_index, "gone": sorted(removed.get(kind, ()))}
            groups.append({**entry, **columns(added.get(kind, ()), index_of, tied)})
        nodes = part.touched[NODES.name]
        dependent_nodes = {name: ChangedObject(None, node) for name, node in base.changed_nodes.items()}
        dependent_nodes |= {
            name: ChangedObject(None, changed.after) if changed.after else changed
            for name, changed in nodes.items()
            if name in dependent_nodes
        }
        return {
            "base": base.digest,
            **header(self._cluster, taken_at, DELTA_VERSION),
            "nodeNames": names,
            "pods": groups,
            "nodes": _changed({**nodes, **dependent_nodes}, base.current.node),
            "podEvents": part.events,
            "nodeclaims": _changed(part.touched[NODECLAIMS.name]),
            "poddisruptionbudgets": _changed(part.touched[BUDGETS.name]),
            "sections": {
                section: content
                for section, content in base.current_sections.items()
                if base.sections.get(section) != content
            },
            "without": sorted(base.sections.keys() - base.current_sections.keys()),
        }

    def _pods(self, base: _Base, part: Part) -> _Moved | None:
        moved = _Moved({}, {}, {})
        touched = part.touched[PODS.name]
        dependent_pods = {
            key: ChangedObject(pod, pod) for key, pod in base.moved_tied.items() if key not in touched
        }
        for key, (before, after) in {**touched, **dependent_pods}.items():
            is_moving = key in base.tied or (after is not None and is_tied(after))
            if before == after and not is_moving:
                continue
            if before is not None:
                kind = base.tied[key][0] if key in base.tied else base.context.kind(before)[0]
                if kind not in base.index_of:
                    return None
                moved.removed.setdefault(kind, []).append(before.name)
            if after is not None:
                moved.tied[key] = kind, _ = base.current.kind(after)
                moved.added.setdefault(kind, []).append(after)
        return moved


class _Moved(NamedTuple):
    """The names of pods that groups of the base lose, and the pods that they or new groups get."""

    removed: dict[Kind, list[str]]
    added: dict[Kind, list[ReducedPod]]
    tied: dict[str, tuple[Kind, str]]


def _changed(
    touched: Mapping[str, ChangedObject], shown: Callable[[Manifest], Manifest] = lambda manifest: manifest
) -> dict[str, Any]:
    changed = {key: states for key, states in sorted(touched.items()) if states.before != states.after}
    return {
        "put": [shown(states.after) for states in changed.values() if states.after is not None],
        "gone": [key for key, states in changed.items() if states.after is None],
    }
