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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from nodesmith.model.karpenter.capacitybuffers import SCALABLE_KINDS
from nodesmith.model.karpenter.nodeclaimobjects import shown_pod_event
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.encoding import (
    Context,
    Kind,
    Row,
    columns,
    compressed,
    header,
    is_tied,
    sections,
    selected_keys,
    shape_of,
    written,
)
from nodesmith.observation.mirror import (
    BUDGETS,
    CAPACITY_BUFFERS,
    NODECLAIMS,
    NODES,
    PODS,
    Change,
    Mirror,
    observed,
)
from nodesmith.observation.observed import (
    DELTA_VERSION,
    Observed,
    ended_by,
    ended_by_claim,
)
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.workloads import referred_objects

SMALL_BYTES = 512 * 2**10
"""A snapshot of at most this size is always written whole, and is read with one request."""
_OLDEST = timedelta(minutes=30)
"""The age at which a base is replaced when something changes, in case it was lost or damaged."""
_LARGEST_PART = 8
"""A delta of more than this part of its base becomes a new base."""
_ALWAYS_SMALL = 64 * 2**10
_MOST_TOUCHED = 50_000
_COMPARED = (PODS, NODES, NODECLAIMS, BUDGETS)
"""Kinds with many objects, of which a delta has those that have changed."""
_HEADER = frozenset({"format", "version", "cluster", "takenAt"})
_LARGE = frozenset({*_HEADER, "nodeNames", "podEvents", *(kind.name for kind in _COMPARED)})


_Aside: TypeAlias = tuple[tuple[str, ...], tuple[str, str]]
"""What changes without a `Change`: problems, and when Karpenter last wrote an object."""


class Touched(NamedTuple):
    """An object that may differ from the base: its state in the base, and today's; None where it does not exist."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Part:
    """What a delta is made from, at one moment.

    `touched` is by kind and key. `events` are the last pod events of the nodes concerned. `rest` is None if nothing has
    changed that more than the touched objects depend on; its pods are those that `sections` needs, and `tied` are all
    that have volumes or devices. `seen` and `aside` are what the recorder notes once `rest` is encoded.
    """

    touched: Mapping[str, Mapping[str, Touched]]
    events: Mapping[str, int]
    rest: Observed | None
    tied: Mapping[str, ReducedPod]
    seen: int
    aside: _Aside


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
    """Notes changes, and writes snapshots. `World` calls `note`, `part` and `restart` while it holds its lock."""

    def __init__(
        self, cluster: str, labels_kept: tuple[str, ...] = (), small_bytes: int = SMALL_BYTES
    ) -> None:
        self._cluster, self._labels_kept, self._small_bytes = cluster, labels_kept, small_bytes
        self._base: _Base | None = None
        self._before: dict[str, dict[str, Any]] | None = None
        """By kind and key, the objects that have changed, as they are in the base; None while there is no base."""
        self._rest_changes, self._rest_seen = 0, 0
        """How many changes of what more than one pod or node depends on were noted, and how many of them encoded."""
        self._is_outdated = False
        self._aside: _Aside = (), ("", "")
        self._alike: dict[str, int] = {}
        """The number of pods of each shape."""
        self._newest: dict[str, ReducedPod] = {}
        """A pod of each shape, for DaemonSets the newest."""
        self._unsure: set[str] = set()
        """Shapes of DaemonSets whose newest pod has gone."""
        self._daemon_shapes: Counter[tuple[str, str]] = Counter()
        self._selecting: Counter[str] = Counter()
        """By key of a label, the shapes whose selectors use it."""
        self._tied: dict[str, ReducedPod] = {}
        self._moved: dict[str, int] = {}
        self._named: dict[str, dict[str, None]] = {}
        """The names of the Nodes of each provider id."""
        self._events: dict[str, int] = {}
        """The last pod event in the status of the NodeClaim of each provider id."""

    def note(self, change: Change, departures: Mapping[str, int]) -> None:
        """Note a change. `departures` has the time of it already."""
        name = change.kind.name
        if change.kind == PODS:
            self._note_pod(change, departures)
        elif change.kind == NODES:
            self._note_node(change)
        elif change.kind == NODECLAIMS:
            self._note_claim(change)
        elif change.kind != BUDGETS or _selector(change.before) != _selector(change.after):
            self._rest_changes += 1
        noted = self._before
        if noted is not None and name in noted:
            touched = noted[name]
            touched.setdefault(change.key, change.before)
            self._is_outdated = self._is_outdated or len(touched) > _MOST_TOUCHED

    def _note_pod(self, change: Change, departures: Mapping[str, int]) -> None:
        before, after = change.before, change.after
        if before is not None and after is not None and _is_alike(before, after):
            if self._newest[after.shape] is before:
                self._newest[after.shape] = after
        else:
            if after is not None:
                self._count(after, 1)
            if before is not None:
                self._count(before, -1)
        if before is not None:
            is_as_late = after is not None and after.node == before.node and after.moved >= before.moved
            if before.moved and not is_as_late and departures.get(before.node, 0) < before.moved:
                self._is_outdated = (
                    True  # who moved last on the node is not known without looking at all pods
                )
            self._tied.pop(change.key, None)
        if after is not None:
            if after.moved > self._moved.get(after.node, 0):
                self._moved[after.node] = after.moved
            if is_tied(after):
                self._tied[change.key] = after
        if any(state is not None and is_tied(state) for state in (before, after)):
            self._rest_changes += 1

    def _count(self, pod: ReducedPod, step: int) -> None:
        shape, kept = pod.shape, self._newest.get(pod.shape)
        count = self._alike[shape] = self._alike.get(shape, 0) + step
        is_news = count == 0 or (step > 0 and count == 1)
        if pod.owner_kind == "DaemonSet":
            self._count_daemon(pod, step, kept, is_news=is_news)
        elif kept is None:
            self._newest[shape] = pod
        if count == 0:
            del self._alike[shape], self._newest[shape]
        if is_news:
            self._note_shape(shape, step)

    def _count_daemon(self, pod: ReducedPod, step: int, kept: ReducedPod | None, *, is_news: bool) -> None:
        """Keep the newest pod of a DaemonSet's shape. If there are several shapes, they are compared by their ages."""
        owner = pod.namespace, pod.owner_name
        if is_news:
            self._daemon_shapes[owner] += step
        if step > 0 and (kept is None or _age(pod) >= _age(kept)):
            self._newest[pod.shape] = pod
        elif step < 0 and kept is not None and kept.name == pod.name:
            self._unsure.add(pod.shape)
        if is_news or self._daemon_shapes[owner] > 1:
            self._rest_changes += 1

    def _note_shape(self, shape: str, step: int) -> None:
        """Note a shape that has come or gone. Other shapes depend on the keys and namespaces that it selects."""
        for key in selected_keys([shape]):
            self._selecting[key] += step
            if self._selecting[key] == max(step, 0):
                self._rest_changes += 1
        if "namespaceSelector" in shape or (self._base and self._base.sections["namespaces"]):
            self._rest_changes += 1

    def _note_node(self, change: Change) -> None:
        before, after = change.before, change.after
        for state in filter(None, (before, after)):
            provider_id = (state.get("spec") or {}).get("providerID")
            names = self._named.setdefault(provider_id, {}) if provider_id else {}
            names.pop(change.key, None)
            if state is after:
                names[change.key] = None
            elif provider_id and not names:
                del self._named[provider_id]
        ends = [ended_by(state) if state is not None else "" for state in (before, after)]
        if ends[0] != ends[1] or self._tied:
            self._rest_changes += 1

    def _note_claim(self, change: Change) -> None:
        for state in filter(None, (change.before, change.after)):
            provider_id = (state.get("status") or {}).get("providerID")
            if provider_id:
                self._events.pop(provider_id, None)
                if state is change.after and (at := shown_pod_event(state)) is not None:
                    self._events[provider_id] = int(at.timestamp())
        states = (change.before, change.after)
        ends = [ended_by_claim(state) if state is not None else "" for state in states]
        if ends[0] != ends[1]:
            self._rest_changes += 1

    def part(
        self,
        mirrors: Mapping[str, Mirror],
        departures: Mapping[str, int],
        growths: Mapping[str, int],
        *,
        is_proactive: bool,
    ) -> Part | None:
        """Return what the next delta is made from, None if there is to be a base. `mirrors` are by their kind's name."""
        if self._before is None or self._is_outdated:
            return None
        touched = {
            name: {key: Touched(before, mirrors[name].objects.get(key)) for key, before in noted.items()}
            for name, noted in self._before.items()
        }
        aside = (
            tuple(text for mirror in mirrors.values() for text in mirror.problems.values()),
            max(mirror.karpenter_wrote for mirror in mirrors.values()),
        )
        reads_all = is_proactive or _refers_to_custom(mirrors[CAPACITY_BUFFERS.name].objects.values())
        rest, tied = None, dict[str, ReducedPod]()
        if reads_all or self._rest_changes != self._rest_seen or aside != self._aside:
            pods = mirrors[PODS.name].objects
            tied = dict(self._tied)
            needed = list(pods.values()) if reads_all else [*self._samples(pods), *tied.values()]
            rest = replace(
                observed((m for m in mirrors.values() if m.kind != PODS), {}, growths),
                pods=needed,
                problems=aside[0],
                labels_kept=self._labels_kept,
            )
        events = dict(self._pod_events(touched, mirrors[NODES.name].objects, departures))
        return Part(touched, events, rest, tied, self._rest_changes, aside)

    def _samples(self, pods: Mapping[str, ReducedPod]) -> Iterator[ReducedPod]:
        """Yield a pod of each shape, of DaemonSets the newest, as if it had no volumes or devices."""
        if self._unsure:
            known: dict[str, ReducedPod] = {}
            for pod in pods.values():
                if pod.shape in self._unsure and _age(pod) >= _age(known.get(pod.shape, pod)):
                    known[pod.shape] = pod
            self._newest.update(known)
            self._unsure.clear()
        return (replace(p, claims=(), devices=()) if is_tied(p) else p for p in self._newest.values())

    def _pod_events(
        self,
        touched: Mapping[str, Mapping[str, Touched]],
        nodes: Mapping[str, Manifest],
        departures: Mapping[str, int],
    ) -> Iterator[tuple[str, int]]:
        states = {
            name: [s for each in found.values() for s in each if s is not None]
            for name, found in touched.items()
        }
        claims = ((state.get("status") or {}).get("providerID") for state in states[NODECLAIMS.name])
        names = {
            *touched[NODES.name],
            *(pod.node for pod in states[PODS.name]),
            *(name for provider_id in claims for name in self._named.get(provider_id or "", ())),
        }
        for name in sorted(names & nodes.keys()):
            provider_id = (nodes[name].get("spec") or {}).get("providerID")
            written_at = self._events.get(provider_id, 0) if provider_id else 0
            yield name, max(self._moved.get(name, 0), departures.get(name, 0), written_at)

    def restart(self, pods: Iterable[ReducedPod]) -> None:
        """Note from now on what differs from a whole snapshot of these pods, which is about to be written."""
        self._before = {kind.name: {} for kind in _COMPARED}
        self._is_outdated, self._rest_seen = False, self._rest_changes
        self._moved = {}
        for pod in pods:
            if pod.moved > self._moved.get(pod.node, 0):
                self._moved[pod.node] = pod.moved

    def forget(self) -> None:
        """Write the next snapshot whole, because the base was not written."""
        self._base = self._before = None

    def encoded(self, taken_at: datetime, part: Part | None, whole: Callable[[], Observed]) -> Encoded:
        """Return the snapshot to write. `whole` returns everything, after a call of `restart`."""
        head = self.delta(taken_at, part)
        if head is not None:
            return Encoded(head)
        self._base = None
        everything = replace(whole(), labels_kept=self._labels_kept)
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
            index_of={kind: index for index, kind in enumerate(made.kinds)},
            kinds=made.kinds,
            tied=made.refusals,
            sections=kept,
            offered={name: places for name, places in offered if places},
            now=made.context,
            now_sections=kept,
        )
        problems, wrote = tuple(everything.problems), everything.karpenter_wrote
        self._aside = problems, wrote
        nothing = Part({kind.name: {} for kind in _COMPARED}, {}, None, {}, self._rest_seen, self._aside)
        return Encoded(
            compressed(self._document(self._base, taken_at, nothing) or {}), data, self._base.digest
        )

    @property
    def has_base(self) -> bool:
        """Whether snapshots are deltas now."""
        return self._base is not None

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
        self._rest_seen, self._aside = part.seen, part.aside
        return True

    def _document(self, base: _Base, taken_at: datetime, part: Part) -> dict[str, Any] | None:
        pods = self._pods(base, part)
        if pods is None:
            return None
        gone, put = pods
        names = sorted({pod.whereabouts for rows in put.values() for pod, _ in rows if pod.whereabouts})
        index_of = {name: index for index, name in enumerate(names)}
        groups = []
        for kind in sorted({*gone, *put}):
            at = base.index_of.get(kind)
            about = {"at": bisect_left(base.kinds, kind), "shape": shape_of(kind)}
            if at is not None:
                about = {"at": at, "gone": sorted(gone.get(kind, ()))}
            groups.append({**about, **columns(put.get(kind, ()), index_of)})
        nodes = part.touched[NODES.name]
        others = {name: Touched(None, node) for name, node in base.now_nodes.items()}
        others |= {name: Touched(None, t.after) if t.after else t for name, t in nodes.items() if name in others}
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

    def _pods(self, base: _Base, part: Part) -> tuple[dict[Kind, list[str]], dict[Kind, list[Row]]] | None:
        """Return the names that groups of the base lose, and the pods that they or new groups get."""
        gone: dict[Kind, list[str]] = {}
        put: dict[Kind, list[Row]] = {}
        touched = part.touched[PODS.name]
        others = {key: Touched(pod, pod) for key, pod in base.now_tied.items() if key not in touched}
        for key, (before, after) in {**touched, **others}.items():
            is_moving = key in base.tied or (after is not None and is_tied(after))
            if before == after and not is_moving:
                continue
            if before is not None:
                kind = base.tied[key][0] if key in base.tied else base.context.kind(before)[0]
                if kind not in base.index_of:
                    return None
                gone.setdefault(kind, []).append(before.name)
            if after is not None:
                kind, refusal = base.now.kind(after)
                put.setdefault(kind, []).append((after, refusal))
        return gone, put


def _changed(
    touched: Mapping[str, Touched], shown: Callable[[Manifest], Manifest] = lambda manifest: manifest
) -> dict[str, Any]:
    changed = {key: each for key, each in sorted(touched.items()) if each.before != each.after}
    return {
        "put": [shown(each.after) for each in changed.values() if each.after is not None],
        "gone": [key for key, each in changed.items() if each.after is None],
    }


def _is_alike(before: ReducedPod, after: ReducedPod) -> bool:
    return (before.shape, before.created) == (after.shape, after.created)


def _age(pod: ReducedPod) -> tuple[int, str]:
    return pod.created, pod.name


def _selector(budget: Manifest | None) -> Any:
    return None if budget is None else (budget.get("spec") or {}).get("selector") or {}


def _refers_to_custom(buffers: Iterable[Manifest]) -> bool:
    return any(kind not in SCALABLE_KINDS for kind, _, _ in referred_objects(buffers))
