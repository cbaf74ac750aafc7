"""The changes in a cluster since the last whole snapshot was written, in the form from which a delta is made."""

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
"""Kinds with many objects. A delta holds only those objects that have changed."""
_MOST_TOUCHED = 50_000
_OtherState: TypeAlias = tuple[tuple[str, ...], tuple[str, str]]
"""State that changes without a `Change`: problems, and when Karpenter last wrote an object."""


class ChangedObject(NamedTuple):
    """An object that may differ from the base: its state in the base and its current one, None if it does not exist."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Part:
    """The input of a delta, at one moment.

    `touched` is by kind and key. `events` are the last pod events of the nodes concerned. `shared_state` is what other
    objects than the touched ones depend on, or None if it has not changed. Its pods are those that `sections` needs,
    and `tied` are all pods that have volumes or devices. The recorder notes `shared_changes` and `other_state` once
    `shared_state` is encoded.
    """

    touched: Mapping[str, Mapping[str, ChangedObject]]
    events: Mapping[str, int]
    shared_state: Observed | None
    tied: Mapping[str, ReducedPod]
    shared_changes: int
    other_state: _OtherState


class Changes:
    """Notes what changes. `World` calls `note`, `part` and `restart` while it holds its lock.

    `labels_kept` is as in `Observed`.
    """

    def __init__(self, labels_kept: tuple[str, ...] = ()) -> None:
        self.labels_kept = labels_kept
        self.selects_namespaces = False
        """Whether the base has namespaces, which depend on those of pods."""
        self._base_objects: dict[str, dict[str, Any]] | None = None
        """By kind and key, the objects that have changed, as they are in the base; None while there is no base."""
        self._shared_changes, self._shared_changes_encoded = 0, 0
        """How often state that several pods or nodes share has changed, and how many of these changes are encoded."""
        self._is_outdated = False
        self._other_state: _OtherState = (), ("", "")
        self._pod_counts: dict[str, int] = {}
        """The number of pods of each shape."""
        self._newest: dict[str, ReducedPod] = {}
        """A pod of each shape; the newest one for DaemonSets."""
        self._without_newest: set[str] = set()
        """Shapes of DaemonSets whose newest pod was deleted."""
        self._daemon_shapes: Counter[tuple[str, str]] = Counter()
        self._selector_keys: Counter[str] = Counter()
        """For each label key, the number of shapes whose selectors use it."""
        self._tied: dict[str, ReducedPod] = {}
        self._moved_at: dict[str, int] = {}
        self._left: set[str] = set()
        """The nodes that pods have left since the base. Some of these pods came after it, and are in no state."""
        self._node_names: dict[str, dict[str, None]] = {}
        """The names of the Nodes of each provider id."""
        self._pod_event_times: dict[str, int] = {}
        """The last pod event in the status of the NodeClaim of each provider id."""

    def note(self, change: Change, departures: Mapping[str, int]) -> None:
        """Note a change. `departures` already includes it."""
        name = change.kind.name
        if change.kind == PODS:
            self._note_pod(change, departures)
        elif change.kind == NODES:
            self._note_node(change)
        elif change.kind == NODECLAIMS:
            self._note_claim(change)
        elif change.kind != BUDGETS or _selector(change.before) != _selector(change.after):
            self._shared_changes += 1
        base_objects = self._base_objects
        if base_objects is not None and name in base_objects:
            touched_in_base = base_objects[name]
            touched_in_base.setdefault(change.key, change.before)
            self._is_outdated = self._is_outdated or len(touched_in_base) > _MOST_TOUCHED

    def _note_pod(self, change: Change, departures: Mapping[str, int]) -> None:
        before, after = change.before, change.after
        if before is not None and after is not None and _is_alike(before, after):
            if self._newest[after.shape] is before:
                self._newest[after.shape] = after
        else:
            for state, step in ((after, 1), (before, -1)):
                if state is not None:
                    self._count(state, step)
        self._note_move(before, after, departures)
        self._tied.pop(change.key, None)
        if after is not None and is_tied(after):
            self._tied[change.key] = after
        if any(state is not None and is_tied(state) for state in (before, after)):
            self._shared_changes += 1

    def _note_move(
        self, before: ReducedPod | None, after: ReducedPod | None, departures: Mapping[str, int]
    ) -> None:
        """Note when the pod moved. Finding the pod that moved last before it would need a look at all pods."""
        if after is not None and after.moved > self._moved_at.get(after.node, 0):
            self._moved_at[after.node] = after.moved
        if before is None or not before.moved:
            return
        if after is None and before.node in departures:
            self._left.add(before.node)
        is_as_late = after is not None and after.node == before.node and after.moved >= before.moved
        if not is_as_late and departures.get(before.node, 0) < before.moved:
            self._is_outdated = True

    def _count(self, pod: ReducedPod, step: int) -> None:
        shape, newest = pod.shape, self._newest.get(pod.shape)
        count = self._pod_counts[shape] = self._pod_counts.get(shape, 0) + step
        is_new_or_gone = count == 0 or (step > 0 and count == 1)
        if pod.owner_kind == "DaemonSet":
            self._count_daemon(pod, step, newest, is_new_or_gone=is_new_or_gone)
        elif newest is None:
            self._newest[shape] = pod
        if count == 0:
            del self._pod_counts[shape], self._newest[shape]
            self._without_newest.discard(shape)
        if is_new_or_gone:
            self._note_shape(shape, step)

    def _count_daemon(
        self, pod: ReducedPod, step: int, newest: ReducedPod | None, *, is_new_or_gone: bool
    ) -> None:
        """Keep the newest pod of a DaemonSet's shape. Several shapes of one DaemonSet are compared by age."""
        owner = pod.namespace, pod.owner_name
        if is_new_or_gone:
            self._daemon_shapes[owner] += step
        if step > 0 and (newest is None or _age(pod) >= _age(newest)):
            self._newest[pod.shape] = pod
        elif step < 0 and newest is not None and newest.name == pod.name:
            self._without_newest.add(pod.shape)
        if is_new_or_gone or self._daemon_shapes[owner] > 1:
            self._shared_changes += 1
        if not self._daemon_shapes[owner]:
            del self._daemon_shapes[owner]

    def _note_shape(self, shape: str, step: int) -> None:
        """Note a shape that is new or gone. Other shapes depend on the keys and namespaces that it selects."""
        for key in selected_keys([shape]):
            self._selector_keys[key] += step
            if self._selector_keys[key] == max(step, 0):
                self._shared_changes += 1
            if not self._selector_keys[key]:
                del self._selector_keys[key]
        if "namespaceSelector" in shape or self.selects_namespaces:
            self._shared_changes += 1

    def _note_node(self, change: Change) -> None:
        before, after = change.before, change.after
        if after is None:
            self._left.discard(change.key)
        for state in filter(None, (before, after)):
            provider_id = (state.get("spec") or {}).get("providerID")
            names = self._node_names.setdefault(provider_id, {}) if provider_id else {}
            names.pop(change.key, None)
            if state is after:
                names[change.key] = None
            elif provider_id and not names:
                del self._node_names[provider_id]
        ending_nodes = [ended_by(state) if state is not None else "" for state in (before, after)]
        if ending_nodes[0] != ending_nodes[1] or self._tied:
            self._shared_changes += 1

    def _note_claim(self, change: Change) -> None:
        for state in filter(None, (change.before, change.after)):
            provider_id = (state.get("status") or {}).get("providerID")
            if provider_id:
                self._pod_event_times.pop(provider_id, None)
                if state is change.after and (event_at := shown_pod_event(state)) is not None:
                    self._pod_event_times[provider_id] = int(event_at.timestamp())
        states = (change.before, change.after)
        ending_nodes = [ended_by_claim(state) if state is not None else "" for state in states]
        if ending_nodes[0] != ending_nodes[1]:
            self._shared_changes += 1

    def part(
        self,
        mirrors: Mapping[str, Mirror],
        departures: Mapping[str, int],
        growths: Mapping[str, int],
        *,
        is_proactive: bool,
    ) -> Part | None:
        """Return the input of the next delta, or None if the next snapshot must be a base. `mirrors` are by name."""
        if self._base_objects is None or self._is_outdated:
            return None
        touched = {
            name: {
                key: ChangedObject(before, mirrors[name].objects.get(key))
                for key, before in base_objects.items()
            }
            for name, base_objects in self._base_objects.items()
        }
        other_state = (
            tuple(text for mirror in mirrors.values() for text in mirror.problems.values()),
            max(mirror.karpenter_wrote for mirror in mirrors.values()),
        )
        reads_all = is_proactive or _refers_to_custom(mirrors[CAPACITY_BUFFERS.name].objects.values())
        shared_state, tied = None, dict[str, ReducedPod]()
        if (
            reads_all
            or self._shared_changes != self._shared_changes_encoded
            or other_state != self._other_state
        ):
            pods = mirrors[PODS.name].objects
            tied = dict(self._tied)
            needed_pods = list(pods.values()) if reads_all else [*self._samples(pods), *tied.values()]
            shared_state = replace(
                observed((m for m in mirrors.values() if m.kind != PODS), {}, growths),
                pods=needed_pods,
                problems=other_state[0],
                labels_kept=self.labels_kept,
            )
        events = dict(self._pod_events(touched, mirrors[NODES.name].objects, departures))
        return Part(touched, events, shared_state, tied, self._shared_changes, other_state)

    def _samples(self, pods: Mapping[str, ReducedPod]) -> Iterator[ReducedPod]:
        """Yield a pod of each shape (the newest one for DaemonSets), without its volumes and devices."""
        if self._without_newest:
            newest: dict[str, ReducedPod] = {}
            for pod in pods.values():
                if pod.shape in self._without_newest and _age(pod) >= _age(newest.get(pod.shape, pod)):
                    newest[pod.shape] = pod
            self._newest.update(newest)
            self._without_newest.clear()
        return (replace(p, claims=(), devices=()) if is_tied(p) else p for p in self._newest.values())

    def _pod_events(
        self,
        touched: Mapping[str, Mapping[str, ChangedObject]],
        nodes: Mapping[str, Manifest],
        departures: Mapping[str, int],
    ) -> Iterator[tuple[str, int]]:
        states = {
            name: [s for changed in changed_objects.values() for s in changed if s is not None]
            for name, changed_objects in touched.items()
        }
        claims = ((state.get("status") or {}).get("providerID") for state in states[NODECLAIMS.name])
        names = {
            *touched[NODES.name],
            *(pod.node for pod in states[PODS.name]),
            *self._left,
            *(name for provider_id in claims for name in self._node_names.get(provider_id or "", ())),
        }
        for name in sorted(names & nodes.keys()):
            provider_id = (nodes[name].get("spec") or {}).get("providerID")
            written_at = self._pod_event_times.get(provider_id, 0) if provider_id else 0
            yield name, max(self._moved_at.get(name, 0), departures.get(name, 0), written_at)

    def restart(self, everything: Observed) -> None:
        """From now on, note what differs from `everything`, whose whole snapshot is about to be written."""
        self._base_objects = {kind.name: {} for kind in COMPARED}
        self._is_outdated, self._shared_changes_encoded = False, self._shared_changes
        self._other_state = tuple(everything.problems), everything.karpenter_wrote
        self._moved_at, self._left = {}, set()
        for pod in everything.pods:
            if pod.moved > self._moved_at.get(pod.node, 0):
                self._moved_at[pod.node] = pod.moved

    def stop(self) -> None:
        """Note nothing more, because there is no base."""
        self._base_objects = None

    def encoded(self, part: Part) -> None:
        """Note that the shared state of a part is encoded."""
        self._shared_changes_encoded, self._other_state = part.shared_changes, part.other_state


def _is_alike(before: ReducedPod, after: ReducedPod) -> bool:
    return (before.shape, before.created) == (after.shape, after.created)


def _age(pod: ReducedPod) -> tuple[int, str]:
    return pod.created, pod.name


def _selector(budget: Manifest | None) -> Any:
    return None if budget is None else (budget.get("spec") or {}).get("selector") or {}


def _refers_to_custom(buffers: Iterable[Manifest]) -> bool:
    return any(kind not in SCALABLE_KINDS for kind, _, _ in referred_objects(buffers))
