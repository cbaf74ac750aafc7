"""What has changed in a cluster since the last whole snapshot was written, in the form from which a delta is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from nodesmith.model.karpenter.capacitybuffers import SCALABLE_KINDS
from nodesmith.model.karpenter.nodeclaimobjects import shown_pod_event
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.encoding import is_tied, selected_keys
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
from nodesmith.observation.observed import Observed, ended_by, ended_by_claim
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.workloads import referred_objects

COMPARED = (PODS, NODES, NODECLAIMS, BUDGETS)
"""Kinds with many objects, of which a delta has those that have changed."""
_MOST_TOUCHED = 50_000
_OtherState: TypeAlias = tuple[tuple[str, ...], tuple[str, str]]
"""What changes without a `Change`: problems, and when Karpenter last wrote an object."""


class ChangedObject(NamedTuple):
    """An object that may differ from the base: its state in the base, and today's; None where it does not exist."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Part:
    """What a delta is made from, at one moment.

    `touched` is by kind and key. `events` are the last pod events of the nodes concerned. `rest` is None if nothing has
    changed that more than the touched objects depend on; its pods are those that `sections` needs, and `tied` are all
    that have volumes or devices. `seen` and `other_state` are what the recorder notes once `rest` is encoded.
    """

    touched: Mapping[str, Mapping[str, ChangedObject]]
    events: Mapping[str, int]
    rest: Observed | None
    tied: Mapping[str, ReducedPod]
    seen: int
    other_state: _OtherState


class Changes:
    """Notes what changes. `World` calls `note`, `part` and `restart` while it holds its lock.

    `labels_kept` is as in `Observed`.
    """

    def __init__(self, labels_kept: tuple[str, ...] = ()) -> None:
        self.labels_kept = labels_kept
        self.selects_namespaces = False
        """Whether the base has namespaces, which depend on those of pods."""
        self._before: dict[str, dict[str, Any]] | None = None
        """By kind and key, the objects that have changed, as they are in the base; None while there is no base."""
        self._rest_changes, self._rest_seen = 0, 0
        """How many changes of what more than one pod or node depends on were noted, and how many of them encoded."""
        self._is_outdated = False
        self._other_state: _OtherState = (), ("", "")
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
            for state, step in ((after, 1), (before, -1)):
                if state is not None:
                    self._count(state, step)
        self._date(before, after, departures)
        self._tied.pop(change.key, None)
        if after is not None and is_tied(after):
            self._tied[change.key] = after
        if any(state is not None and is_tied(state) for state in (before, after)):
            self._rest_changes += 1

    def _date(
        self, before: ReducedPod | None, after: ReducedPod | None, departures: Mapping[str, int]
    ) -> None:
        """Note when the pod moved. Who moved last before it is not known without a look at all pods."""
        if after is not None and after.moved > self._moved.get(after.node, 0):
            self._moved[after.node] = after.moved
        if before is None or not before.moved:
            return
        is_as_late = after is not None and after.node == before.node and after.moved >= before.moved
        if not is_as_late and departures.get(before.node, 0) < before.moved:
            self._is_outdated = True

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
        if "namespaceSelector" in shape or self.selects_namespaces:
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
        """Return what the next delta is made from, None if there is to be a base. `mirrors` are by their name."""
        if self._before is None or self._is_outdated:
            return None
        touched = {
            name: {
                key: ChangedObject(before, mirrors[name].objects.get(key)) for key, before in noted.items()
            }
            for name, noted in self._before.items()
        }
        other_state = (
            tuple(text for mirror in mirrors.values() for text in mirror.problems.values()),
            max(mirror.karpenter_wrote for mirror in mirrors.values()),
        )
        reads_all = is_proactive or _refers_to_custom(mirrors[CAPACITY_BUFFERS.name].objects.values())
        rest, tied = None, dict[str, ReducedPod]()
        if reads_all or self._rest_changes != self._rest_seen or other_state != self._other_state:
            pods = mirrors[PODS.name].objects
            tied = dict(self._tied)
            needed = list(pods.values()) if reads_all else [*self._samples(pods), *tied.values()]
            rest = replace(
                observed((m for m in mirrors.values() if m.kind != PODS), {}, growths),
                pods=needed,
                problems=other_state[0],
                labels_kept=self.labels_kept,
            )
        events = dict(self._pod_events(touched, mirrors[NODES.name].objects, departures))
        return Part(touched, events, rest, tied, self._rest_changes, other_state)

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
        touched: Mapping[str, Mapping[str, ChangedObject]],
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

    def restart(self, everything: Observed) -> None:
        """Note from now on what differs from the whole snapshot of `everything`, which is about to be written."""
        self._before = {kind.name: {} for kind in COMPARED}
        self._is_outdated, self._rest_seen = False, self._rest_changes
        self._other_state = tuple(everything.problems), everything.karpenter_wrote
        self._moved = {}
        for pod in everything.pods:
            if pod.moved > self._moved.get(pod.node, 0):
                self._moved[pod.node] = pod.moved

    def stop(self) -> None:
        """Note nothing more, because there is no base."""
        self._before = None

    def encoded(self, part: Part) -> None:
        """Take note that the rest of a part is encoded."""
        self._rest_seen, self._other_state = part.seen, part.other_state


def _is_alike(before: ReducedPod, after: ReducedPod) -> bool:
    return (before.shape, before.created) == (after.shape, after.created)


def _age(pod: ReducedPod) -> tuple[int, str]:
    return pod.created, pod.name


def _selector(budget: Manifest | None) -> Any:
    return None if budget is None else (budget.get("spec") or {}).get("selector") or {}


def _refers_to_custom(buffers: Iterable[Manifest]) -> bool:
    return any(kind not in SCALABLE_KINDS for kind, _, _ in referred_objects(buffers))
