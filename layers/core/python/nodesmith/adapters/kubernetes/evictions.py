"""Removing pods from a node: evictions, which disruption budgets may refuse, and deletions, which they may not.

Each pod is read first, because a snapshot may be outdated: a StatefulSet's pod has the same name on its next node. The
uid that was read is a precondition of the write, so no other pod of that name is affected.

The API server counts each eviction in the budget's status. If that update conflicts with another one, it sleeps half a
second before it retries. Therefore only one eviction per budget is in progress at a time, and pods of one budget are
not adjacent in the order, so that they do not block others. The disruption controller updates the status too, so some
requests still wait; that is why many are sent in parallel.

After a second, and once half of the budgets are done, no further eviction begins. More of them would have to wait for
the slow budgets, and the next run sees the outcome of all.

Two runs may evict the same pods at once, so each starts at a random pod and finds the other run's part done.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import randrange
from threading import Lock
from time import monotonic
from typing import Any, TypeAlias

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Manifest, Method, failure
from nodesmith.adapters.kubernetes.writes import READ_SECONDS, for_each, pod_path
from nodesmith.errors import Transient
from nodesmith.model.kubernetes.evictions import (
    BUDGET,
    DENIED,
    SEVERAL_BUDGETS,
    Evicted,
    Eviction,
    EvictionRefused,
    Gone,
    PodOnNode,
    Postponed,
)

Request: TypeAlias = tuple[Method, str, Mapping[str, Any]]
_AT_ONCE = 32
"""Parallel requests: as many as the client keeps connections."""
_PATIENCE_SECONDS = 1.0
"""How long after the start evictions may begin in any case."""
_SEVERAL = "more than one PodDisruptionBudget"  # the API server sends this message without a reason
_DENIALS = ("denied the request", "denied request")  # of admission webhooks, and of admission policies


def _ignore(_: int) -> None:
    pass


def evict(
    server: ApiServer,
    pods: Sequence[PodOnNode],
    patience_seconds: float = _PATIENCE_SECONDS,
    answered: Callable[[int], None] = _ignore,
) -> dict[str, Eviction]:
    """Evict pods and return their outcomes in order. Pods that would delay the next run are Postponed.

    `answered` is called with the HTTP status of each request, from any thread. Raises Transient if pods remain after
    two rounds.
    """

    def request(pod: str, options: Manifest) -> Request:
        namespace, _, name = pod.partition("/")
        metadata = {"namespace": namespace, "name": name}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        return "POST", pod_path(pod, "eviction"), body

    return _all(server, pods, request, "pods not evicted", monotonic() + patience_seconds, answered)


def delete(server: ApiServer, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
    """Delete pods and return their outcomes in order. Raises Transient if pods remain after two rounds."""

    def request(pod: str, options: Manifest) -> Request:
        return "DELETE", pod_path(pod), {"apiVersion": "v1", "kind": "DeleteOptions", **options}

    return _all(server, pods, request, "pods not deleted", latest=math.inf)


@dataclass(slots=True)
class _BudgetQueue:
    """The evictions of one budget, one at a time: their number, the pods requested, and the pods answered."""

    size: int
    turn: Lock = field(default_factory=Lock)
    requested: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)

    @property
    def is_finished(self) -> bool:
        return len(self.answered) == self.size


def _all(
    server: ApiServer,
    pods: Sequence[PodOnNode],
    request: Callable[[str, Manifest], Request],
    failed: str,
    latest: float,
    answered: Callable[[int], None] = _ignore,
) -> dict[str, Eviction]:
    sizes = Counter(pod.budget for pod in pods if pod.budget)
    lanes = {budget: _BudgetQueue(size) for budget, size in sizes.items()}

    def is_late() -> bool:
        return monotonic() > latest and 2 * sum(lane.is_finished for lane in lanes.values()) >= len(lanes)

    def end(pod: PodOnNode) -> Eviction:
        answer = end_in_turn(pod)
        if pod.budget:
            lanes[pod.budget].answered.add(pod.pod)
        return answer

    def end_in_turn(pod: PodOnNode) -> Eviction:
        current = server.get(pod_path(pod.pod), read_seconds=READ_SECONDS)
        if current is None or not runs_on(current, pod.node):
            return Gone()
        uid = current["metadata"]["uid"]
        if ends_by(current, pod.grace_seconds):
            return Evicted(uid, before=True)
        lane = lanes.get(pod.budget)
        if lane is None:
            return _end(server, pod, uid, request, answered)
        with lane.turn:
            if lane.requested and pod.pod not in lane.requested and is_late():
                return Postponed()
            lane.requested.add(pod.pod)
            return _end(server, pod, uid, request, answered)

    answers = for_each(_mixed(pods), end, failed, _AT_ONCE)
    return {pod.pod: answers[pod] for pod in pods}


def _mixed(pods: Sequence[PodOnNode]) -> list[PodOnNode]:
    """Return pods in an order that starts at a random pod and alternates between budgets.

    One pod of each budget and all pods without a budget come first, then a second pod of each budget, and so on.
    """
    start = randrange(len(pods)) if pods else 0  # noqa: S311
    seen_by_budget: Counter[str] = Counter()

    def place(pod: PodOnNode) -> int:
        seen_by_budget[pod.budget] += 1
        return seen_by_budget[pod.budget] if pod.budget else 1

    return sorted([*pods[start:], *pods[:start]], key=place)


def _end(
    server: ApiServer,
    pod: PodOnNode,
    uid: str,
    request: Callable[[str, Manifest], Request],
    answered: Callable[[int], None],
) -> Eviction:
    grace = {} if pod.grace_seconds is None else {"gracePeriodSeconds": pod.grace_seconds}
    method, path, body = request(pod.pod, {"preconditions": {"uid": uid}, **grace})
    status, status_object = server.ask(method, path, body, read_seconds=READ_SECONDS)
    answered(status)
    return Evicted(uid) if status < 400 else _refusal(status, status_object, f"{method} {path}")


def runs_on(pod: Manifest, node: str) -> bool:
    """Return whether a pod is bound to `node` and has not terminated."""
    is_ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not is_ended and pod["spec"].get("nodeName") == node


def ends_by(pod: Manifest, grace_seconds: int | None) -> bool:
    """Return whether a pod is already terminating within `grace_seconds`. None accepts any grace period."""
    if not pod["metadata"].get("deletionTimestamp"):
        return False
    return grace_seconds is None or (pod["metadata"].get("deletionGracePeriodSeconds") or 0) <= grace_seconds


def _refusal(status: int, status_object: Manifest, call: str) -> Eviction:
    """Return the outcome for an error response. Raises Transient for errors that may pass."""
    message = str(status_object.get("message") or "")
    if status in (404, 409):
        return Gone()  # or another pod has this name: its uid differs
    details = status_object.get("details") or {}
    causes = (cause for cause in details.get("causes") or () if cause.get("reason") == "DisruptionBudget")
    messages = [str(cause.get("message") or "") for cause in causes]
    if messages or details.get("kind") == "poddisruptionbudget":
        return EvictionRefused(BUDGET, " ".join([message, *messages]))
    if _SEVERAL in message:
        return EvictionRefused(SEVERAL_BUDGETS, message)
    error = failure(status, status_object, call)
    if isinstance(error, Transient) and not any(words in message for words in _DENIALS):
        raise error
    return EvictionRefused(DENIED, message)
