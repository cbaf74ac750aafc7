"""Making pods leave a node: evictions, which disruption budgets may refuse, and deletions, which they may not.

Each pod is read first, for a snapshot may be old: a StatefulSet's pod has the same name on its next node. The uid that
was read is the precondition, so nobody else is met between the reading and the write.

An API server counts each eviction in the budget's status, and one that finds another's count there sleeps half a second
before it counts again. So of one budget one eviction is asked for at a time, and its pods do not stand in a row, in
the way of others. The budget's own controller counts too, so some wait all the same, and many are asked for at once.
After a second, and as soon as half of the budgets are through, no other eviction begins: the next round of those would
wait for the rest, and the next look sees by then what has become of all.
As two runs may do the same, each begins somewhere else, and finds the other's part done.
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
from nodesmith.adapters.kubernetes.paths import pod_path
from nodesmith.adapters.kubernetes.podwrites import READ_SECONDS, for_each
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
"""As many as there are connections kept open."""
_PATIENCE_SECONDS = 1.0
"""How long after the first of them evictions begin in any case."""
_SEVERAL = "more than one PodDisruptionBudget"  # the API server has no reason for it, only this message
_DENIALS = ("denied the request", "denied request")  # of admission webhooks, and of admission policies


def _unheard(_: int) -> None:
    pass


def evict(
    server: ApiServer,
    pods: Sequence[PodOnNode],
    patience_seconds: float = _PATIENCE_SECONDS,
    answered: Callable[[int], None] = _unheard,
) -> dict[str, Eviction]:
    """Evict pods; gives what became of each, in order: those that would keep the next look waiting are Postponed.

    `answered` is told the HTTP status of each request, from any thread. Raises Transient for those that two rounds have
    left.
    """

    def request(pod: str, options: Manifest) -> Request:
        namespace, _, name = pod.partition("/")
        metadata = {"namespace": namespace, "name": name}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        return "POST", pod_path(pod, "eviction"), body

    return _all(server, pods, request, "pods not evicted", monotonic() + patience_seconds, answered)


def delete(server: ApiServer, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
    """Delete pods; gives what became of each, in order. Raises Transient for those that two rounds have left."""

    def request(pod: str, options: Manifest) -> Request:
        return "DELETE", pod_path(pod), {"apiVersion": "v1", "kind": "DeleteOptions", **options}

    return _all(server, pods, request, "pods not deleted", latest=math.inf)


@dataclass(slots=True)
class _Lane:
    """The evictions that count for one budget, one at a time: how many there are, who was asked, who has an answer."""

    size: int
    turn: Lock = field(default_factory=Lock)
    asked: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)

    @property
    def is_through(self) -> bool:
        return len(self.answered) == self.size


def _all(
    server: ApiServer,
    pods: Sequence[PodOnNode],
    request: Callable[[str, Manifest], Request],
    failed: str,
    latest: float,
    answered: Callable[[int], None] = _unheard,
) -> dict[str, Eviction]:
    sizes = Counter(pod.budget for pod in pods if pod.budget)
    lanes = {budget: _Lane(size) for budget, size in sizes.items()}

    def is_late() -> bool:
        return monotonic() > latest and 2 * sum(lane.is_through for lane in lanes.values()) >= len(lanes)

    def end(pod: PodOnNode) -> Eviction:
        answer = end_in_turn(pod)
        if pod.budget:
            lanes[pod.budget].answered.add(pod.pod)
        return answer

    def end_in_turn(pod: PodOnNode) -> Eviction:
        there = server.get(pod_path(pod.pod), read_seconds=READ_SECONDS)
        if there is None or not runs_on(there, pod.node):
            return Gone()
        uid = there["metadata"]["uid"]
        if ends_by(there, pod.grace_seconds):
            return Evicted(uid, before=True)
        lane = lanes.get(pod.budget)
        if lane is None:
            return _end(server, pod, uid, request, answered)
        with lane.turn:
            if lane.asked and pod.pod not in lane.asked and is_late():
                return Postponed()
            lane.asked.add(pod.pod)
            return _end(server, pod, uid, request, answered)

    answers = for_each(_mixed(pods), end, failed, _AT_ONCE)
    return {pod.pod: answers[pod] for pod in pods}


def _mixed(pods: Sequence[PodOnNode]) -> list[PodOnNode]:
    """Begin with a pod that is drawn; then comes one of each budget, and all that have none, then a second of each."""
    first = randrange(len(pods)) if pods else 0  # noqa: S311
    met: Counter[str] = Counter()

    def place(pod: PodOnNode) -> int:
        met[pod.budget] += 1
        return met[pod.budget] if pod.budget else 1

    return sorted([*pods[first:], *pods[:first]], key=place)


def _end(
    server: ApiServer,
    wanted: PodOnNode,
    uid: str,
    request: Callable[[str, Manifest], Request],
    answered: Callable[[int], None],
) -> Eviction:
    grace = {} if wanted.grace_seconds is None else {"gracePeriodSeconds": wanted.grace_seconds}
    method, path, body = request(wanted.pod, {"preconditions": {"uid": uid}, **grace})
    status, said = server.ask(method, path, body, read_seconds=READ_SECONDS)
    answered(status)
    return Evicted(uid) if status < 400 else _refusal(status, said, f"{method} {path}")


def runs_on(pod: Manifest, node: str) -> bool:
    """Return whether a pod is bound to a node and has not ended."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not ended and pod["spec"].get("nodeName") == node


def ends_by(pod: Manifest, grace_seconds: int | None) -> bool:
    """Return whether a pod is ending already, and with no more than this grace; None is any."""
    if not pod["metadata"].get("deletionTimestamp"):
        return False
    return grace_seconds is None or (pod["metadata"].get("deletionGracePeriodSeconds") or 0) <= grace_seconds


def _refusal(status: int, said: Manifest, what: str) -> Eviction:
    """Read what the API server says instead. Raises Transient for what may pass."""
    message = str(said.get("message") or "")
    if status in (404, 409):
        return Gone()  # or another pod by that name: the uid was not its own
    details = said.get("details") or {}
    causes = (cause for cause in details.get("causes") or () if cause.get("reason") == "DisruptionBudget")
    why = [str(cause.get("message") or "") for cause in causes]
    if why or details.get("kind") == "poddisruptionbudget":
        return EvictionRefused(BUDGET, " ".join([message, *why]))
    if _SEVERAL in message:
        return EvictionRefused(SEVERAL_BUDGETS, message)
    error = failure(status, said, what)
    if isinstance(error, Transient) and not any(words in message for words in _DENIALS):
        raise error
    return EvictionRefused(DENIED, message)
