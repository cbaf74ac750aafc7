"""Milestones of a local system, derived from changes of its objects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith_formats.kubernetes.objects import condition_of, pod_key

View = Mapping[str, Any]

PENDING, BOUND, DELETED = "pending", "bound", "deleted"
CLAIMED, LAUNCHED, REGISTERED, INITIALIZED, READY = (
    "claimed",
    "launched",
    "registered",
    "initialized",
    "ready",
)
JOINED, NOT_READY, DECIDED = "joined", "not ready", "decided"
FOLLOWED = ("pods", "nodes", "nodeclaims", "nodepools", "ec2nodeclasses", "nodeoverlays")
"""The resources that have milestones."""

_CLAIM_CONDITIONS = {
    "Launched": LAUNCHED,
    "Registered": REGISTERED,
    "Initialized": INITIALIZED,
    "Ready": READY,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One milestone. `object` is `Kind/name`, for pods `Pod/namespace/name`."""

    at: datetime
    what: str
    object: str
    detail: str = ""


class Timeline:
    """Collects milestones in the order of their observation. Threads may share it.

    `listener` is called with each entry, in the thread that adds it.
    """

    def __init__(self, listener: Callable[[Entry], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._listener = listener

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries so far, sorted by time."""
        with self._lock:
            return tuple(sorted(self._entries, key=lambda entry: entry.at))

    def add(self, entry: Entry) -> None:
        """Add a milestone that no object shows."""
        with self._lock:
            self._entries.append(entry)
        if self._listener:
            self._listener(entry)

    def observe(self, at: datetime, before: View | None, after: View | None) -> None:
        """Add the milestones in the change of one object; None means that the object does not exist."""
        for milestone, detail in milestones(before, after):
            self.add(Entry(at, milestone, reference(after or before or {}), detail))


def reference(manifest: View) -> str:
    """Return an object's reference, such as `Node/ip-10-0-1-2` or `Pod/default/web-0`."""
    kind, metadata = str(manifest.get("kind")), manifest["metadata"]
    return f"{kind}/{pod_key(manifest)}" if kind == "Pod" else f"{kind}/{metadata['name']}"


def condition(manifest: View | None, kind: str) -> View:
    """Return a status condition, or an empty one if there is none."""
    return condition_of(manifest or {}, kind) or {}


def milestones(before: View | None, after: View | None) -> Iterator[tuple[str, str]]:
    """Yield the milestones in a change, each with its detail; most changes contain none."""
    if after is None:
        yield DELETED, ""
        return
    match after.get("kind"):
        case "Pod":
            yield from _pod(before, after)
        case "Node":
            yield from _node(before, after)
        case "NodeClaim":
            yield from _claim(before, after)
        case "NodePool" | "EC2NodeClass" | "NodeOverlay":
            yield from _readiness(before, after)


def _pod(before: View | None, after: View) -> Iterator[tuple[str, str]]:
    node, earlier = _node_name(after), _node_name(before or {})
    if before is None and not node:
        yield PENDING, ""
    if node and not earlier:
        yield BOUND, node


def _node_name(pod: View) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _node(before: View | None, after: View) -> Iterator[tuple[str, str]]:
    if before is None:
        yield JOINED, str((after.get("spec") or {}).get("providerID") or "")
    if _became("Ready", "True", before, after):
        yield READY, ""


def _claim(before: View | None, after: View) -> Iterator[tuple[str, str]]:
    if before is None:
        yield CLAIMED, str((after["metadata"].get("labels") or {}).get("karpenter.sh/nodepool") or "")
    for kind, milestone in _CLAIM_CONDITIONS.items():
        if _became(kind, "True", before, after):
            yield milestone, _offering(after) if milestone == LAUNCHED else ""
    if _became("Launched", "False", before, after):
        yield NOT_READY, _reason_and_message(condition(after, "Launched"))


def _offering(claim: View) -> str:
    labels = claim["metadata"].get("labels") or {}
    return " ".join(filter(None, (labels.get(key) for key in (CAPACITY_TYPE, INSTANCE_TYPE, ZONE))))


def _readiness(before: View | None, after: View) -> Iterator[tuple[str, str]]:
    now = condition(after, "Ready")
    if _became("Ready", "True", before, after):
        yield READY, ""
    elif now.get("status") == "False" and _reason_and_message(now) != _reason_and_message(
        condition(before, "Ready")
    ):
        yield NOT_READY, _reason_and_message(now)


def _reason_and_message(shown_condition: View) -> str:
    return ": ".join(filter(None, (shown_condition.get("reason"), shown_condition.get("message"))))


def _became(kind: str, status: str, before: View | None, after: View) -> bool:
    return condition(after, kind).get("status") == status != condition(before, kind).get("status")
