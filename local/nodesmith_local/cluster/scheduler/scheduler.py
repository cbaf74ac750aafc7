"""The scheduler: filter, score and bind; record the reason where no node fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.kubernetes.objects import Object, View, condition_of, dig, name_of, timestamp
from nodesmith_local.apiserver.requests.subresources import bound
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store, Write
from nodesmith_local.cluster.deviceclaims import CLAIMS as DEVICE_CLAIMS
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_leaving, is_over, node_name
from nodesmith_local.cluster.records import record, with_condition
from nodesmith_local.cluster.scheduler.devices import (
    DEVICE_CLASSES,
    SLICES,
    device_filters,
    device_reason,
    reserve,
)
from nodesmith_local.cluster.scheduler.filters import Filter, resource_reasons, social_filters, static_reason
from nodesmith_local.cluster.scheduler.needs import needs_of, ports_of
from nodesmith_local.cluster.scheduler.nominations import Promises
from nodesmith_local.cluster.scheduler.podcounts import NodeRoom, PlacedPod, PodCounts
from nodesmith_local.cluster.scheduler.queue import Queue, Waiting
from nodesmith_local.cluster.scheduler.scores import best
from nodesmith_local.cluster.scheduler.volumes import CLAIMS, CLASSES, VOLUMES, claim_reason, volume_filters

_BATCH = 200  # pods tried in one step, so that the other stand-ins can run in between
_ENOUGH = 100  # feasible nodes that end the search: kube-scheduler's minNumFeasibleNodesToFind
_NAME = "default-scheduler"
_GATED = "Scheduling is blocked due to non-empty scheduling gates"


class Scheduler:
    """Binds pending pods through the API's binding subresource."""

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        self.store = store
        self._mirrors = mirrors
        self._census = PodCounts()
        self._queue = Queue()
        self._promises = Promises()
        # Reasons why no node fits pods of a likeness, valid until a change that could help them. Placing a pod takes
        # room from all, but may help pods whose rules depend on other pods.
        self._verdicts: dict[str, str] = {}
        self._social_verdicts: dict[str, str] = {}
        self._static: dict[str, dict[str, str]] = {}  # likeness → node → static reason
        self._start = 0
        self._gated: dict[tuple[str, str], View] = {}
        mirrors["nodes"].listen(self._node_changed)
        mirrors["pods"].listen(self._pod_changed)
        for kind in (CLAIMS, VOLUMES, CLASSES, DEVICE_CLAIMS, DEVICE_CLASSES, SLICES):
            mirrors[kind].listen(lambda _before, _after: self._something_changed())

    def due(self) -> datetime | None:
        """Return None: the scheduler waits for changes, never for a time."""
        return None

    def step(self) -> bool:
        """Try the waiting pods; return whether anything was written or pods are left to try."""
        has_written = self._explain_gates()
        placed = False
        for waiting in self._queue.take(_BATCH):
            outcome = self._try(waiting)
            has_written, placed = has_written or outcome is not None, placed or outcome is True
        if placed:
            self._queue.retry(social_only=True)
        return has_written or self._queue.has_work

    def _try(self, waiting: Waiting) -> bool | None:
        """Place one pod.

        Return True if it was bound, False if the reason against it was written, None if nothing changed.
        """
        if waiting.nominated:
            return self._try_nominated(waiting)
        verdicts = self._social_verdicts if waiting.social else self._verdicts
        verdict = verdicts.get(waiting.equivalence_key)
        if verdict is None:
            room, verdict = self._place(waiting)
            if room:
                return self._bind(waiting, room)
            verdicts[waiting.equivalence_key] = verdict
        return False if self._refuse(waiting, verdict) else None

    def _try_nominated(self, waiting: Waiting) -> bool | None:
        """Place a pod on its nominated node, else on any; if no node fits, clear the nomination."""
        nominated_room = self._census.rooms.get(waiting.nominated)
        room = nominated_room and self._place(waiting, [nominated_room])[0]
        if not room:
            room, verdict = self._place(waiting)
            if not room:
                return False if self._refuse(waiting, verdict) else None
        return self._bind(waiting, room)

    def _place(
        self, waiting: Waiting, among: Iterable[NodeRoom] | None = None
    ) -> tuple[NodeRoom | None, str]:
        """Return the best node and "", or None and the reason why no node fits."""
        nowhere = claim_reason(waiting.pod, self._mirrors) or device_reason(waiting.pod, self.store)
        rooms, reasons = ([], Counter[str]()) if nowhere else self._possible(waiting, among)
        if rooms:
            return best(waiting.pod, waiting.needs, rooms, self._census), ""
        return None, _failure_message(len(self._census.rooms), reasons, nowhere)

    def _possible(
        self, waiting: Waiting, among: Iterable[NodeRoom] | None
    ) -> tuple[list[NodeRoom], Counter[str]]:
        reasons: Counter[str] = Counter()
        rooms: list[NodeRoom] = []
        filters = [
            *volume_filters(waiting.pod, self._mirrors),
            *social_filters(waiting.pod, self._census),
            *device_filters(waiting.pod, self.store),
        ]
        for room in self._in_turn() if among is None else among:
            if len(rooms) >= _ENOUGH:
                break
            against = self._against(waiting, room, filters)
            reasons.update(against)
            if not against:
                rooms.append(room)
        return rooms, reasons

    def _against(self, waiting: Waiting, room: NodeRoom, filters: Sequence[Filter]) -> list[str]:
        static = self._static.setdefault(waiting.equivalence_key, {})
        reason = static.get(room.name)
        if reason is None:
            reason = static[room.name] = static_reason(waiting.pod, room.node)
        if reason:
            return [reason]
        reserved = tuple(self._promises.kept_from(waiting, room.name))
        if short := resource_reasons(waiting, room, reserved):
            return short
        return next(([reasons] for filter_ in filters if (reasons := filter_(room))), [])

    def _in_turn(self) -> Iterator[NodeRoom]:
        """Yield all nodes, from a different start each time, so that a search that ends early is fair."""
        rooms = list(self._census.rooms.values())
        if len(rooms) > _ENOUGH:
            self._start = (self._start + _ENOUGH) % len(rooms)
            rooms = rooms[self._start :] + rooms[: self._start]
        return iter(rooms)

    def _bind(self, waiting: Waiting, room: NodeRoom) -> bool | None:
        namespace, name = waiting.key
        self._queue.drop(waiting.key)
        if self._promises.drop(waiting.uid) not in (None, room.name):
            self._something_changed()
        if not reserve(waiting.pod, self.store, room.node):
            return None
        try:
            bound(self.store, name, namespace, {"target": {"kind": "Node", "name": room.name}}, Write())
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return None  # deleted, or bound by someone else; the mirror will show which
        pod = self.store.find("pods", name, namespace)
        if pod is not None:
            self._census.settle(PlacedPod(pod, room.name, waiting.needs, waiting.ports))
            message = f"Successfully assigned {namespace}/{name} to {room.name}"
            record(self.store, pod, _NAME, "Scheduled", message)
        self._social_verdicts.clear()
        return True

    def _leave(self, key: Key, uid: str) -> None:
        """Stop considering a pod that has a node, is gone, or belongs to another scheduler."""
        self._queue.drop(key)
        if self._promises.drop(uid):
            self._something_changed()

    def _refuse(self, waiting: Waiting, message: str) -> bool:
        pod = waiting.pod
        existing = condition_of(pod, "PodScheduled")
        is_reported = existing is not None and (existing.get("reason"), existing.get("message")) == (
            "Unschedulable",
            message,
        )
        if is_reported and not waiting.nominated:
            return False
        self._write_condition(pod, {"reason": "Unschedulable", "message": message}, nominatedNodeName=None)
        if not is_reported:
            record(self.store, pod, _NAME, "FailedScheduling", message, warning=True)
        return True

    def _explain_gates(self) -> bool:
        gated, self._gated = self._gated, {}
        for pod in gated.values():
            self._write_condition(pod, {"reason": "SchedulingGated", "message": _GATED})
        return bool(gated)

    def _write_condition(self, pod: View, condition_fields: Object, **fields: None) -> None:
        condition = {"type": "PodScheduled", "status": "False", **condition_fields}
        status = {"conditions": with_condition(pod, condition, timestamp(self.store.now())), **fields}
        try:
            self.store.patch(
                "pods", name_of(pod), {"status": status}, pod["metadata"]["namespace"], subresource="status"
            )
        except ApiError as error:
            if error.code != 404:
                raise

    def _node_changed(self, before: View | None, after: View | None) -> None:
        if after is None and before is not None:
            self._census.drop_node(name_of(before))
        elif after is not None:
            self._census.set_node(after)
            if before is not None and _placing(before) == _placing(after):
                return
        name = name_of(after or before or {})
        for reasons_by_node in self._static.values():
            reasons_by_node.pop(name, None)
        self._something_changed()

    def _pod_changed(self, before: View | None, after: View | None) -> None:
        pod = after or before
        if pod is None:
            return
        key, uid = (pod["metadata"]["namespace"], name_of(pod)), pod["metadata"]["uid"]
        if (
            before is not None
            and before["metadata"]["uid"] != uid
            and self._census.leave(before["metadata"]["uid"])
        ):
            self._something_changed()
        if after is None or is_over(after):
            self._leave(key, uid)
            if self._census.leave(uid):
                self._something_changed()
        elif node_name(after):
            self._leave(key, uid)
            self._settle(after, uid)
        elif is_leaving(after) or dig(after, "spec", "schedulerName") != _NAME:
            self._leave(key, uid)
        elif dig(after, "spec", "schedulingGates"):
            self._leave(key, uid)
            if (condition_of(after, "PodScheduled") or {}).get("reason") != "SchedulingGated":
                self._gated[key] = after
        elif self._promises.keep(self._queue.put(key, after)):
            self._something_changed()

    def _settle(self, pod: View, uid: str) -> None:
        existing = self._census.residents.get(uid)
        if existing and _counted(existing.pod) == _counted(pod):
            return
        self._census.settle(PlacedPod(pod, node_name(pod), needs_of(pod["spec"]), ports_of(pod["spec"])))
        self._something_changed()

    def _something_changed(self) -> None:
        self._verdicts.clear()
        self._social_verdicts.clear()
        if len(self._static) > 5_000:
            self._static.clear()
        self._queue.retry()


def _placing(node: View) -> tuple[object, ...]:
    """Return the properties of a node that decide which pods fit on it."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        spec.get("unschedulable"),
        status.get("allocatable"),
    )


def _counted(pod: View) -> tuple[object, ...]:
    """Return the properties of a bound pod that decide how it is counted."""
    return pod["metadata"].get("labels"), pod["spec"], is_leaving(pod)


def _failure_message(nodes: int, reasons: Counter[str], nowhere: str) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    listed = nowhere or ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{nodes} nodes are available: {listed}."
