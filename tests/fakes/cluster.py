"""A cluster in memory: what an API server keeps of what is written to it, without the server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nodesmith.adapters.statuses import merged_status, patched_node
from nodesmith.model.nodes import NodePatch
from nodesmith.model.times import format_time
from tests.fakes.cloud import Call

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """A published event."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool


def _nothing(call: Call) -> None:
    """Let the call be."""


@dataclass(slots=True)
class FakeCluster:
    """A Cluster. Put Nodes, NodePools and EC2NodeClasses in as manifests, by name.

    `raise_before` and `raise_after` are called with each Call, and may raise: before it has an effect, or after it.
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodepools: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodeclasses: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodeclaims: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """by namespace/name"""
    events: list[Event] = field(default_factory=list)
    clock: Callable[[], datetime] = lambda: datetime(2026, 11, 21, 8, tzinfo=UTC)
    raise_before: Callable[[Call], None] = _nothing
    raise_after: Callable[[Call], None] = _nothing
    calls: list[Call] = field(default_factory=list)

    def apply_nodeclaim(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        call = self._begin("apply_nodeclaim", name)
        there = self.nodeclaims.get(name) or self._created(manifest)
        metadata = dict(there["metadata"])
        for part in ("labels", "annotations"):
            if manifest["metadata"].get(part):
                metadata[part] = {**(metadata.get(part) or {}), **manifest["metadata"][part]}
        status = merged_status(there.get("status") or {}, manifest.get("status") or {}, self.clock())
        self.nodeclaims[name] = {**there, "metadata": metadata, **({"status": status} if status else {})}
        self.raise_after(call)

    def delete_nodeclaim(self, name: str) -> None:
        call = self._begin("delete_nodeclaim", name)
        self.nodeclaims.pop(name, None)
        self.raise_after(call)

    def register_node(self, name: str, patch: NodePatch) -> bool:
        call = self._begin("register_node", name)
        there = self.nodes.get(name)
        patched = patched_node(there, patch) if there is not None else None
        if patched is not None:
            self.nodes[name] = patched
        self.raise_after(call)
        return patched is not None

    def nominate(self, node: str, pods: Sequence[str]) -> None:
        call = self._begin("nominate", node, *pods)
        for key in pods:
            pod = self.pods.get(key)
            if pod is not None and not pod["spec"].get("nodeName"):
                pod.setdefault("status", {}).setdefault("nominatedNodeName", node)
        self.raise_after(call)

    def nodepool_status(self, name: str, status: Manifest) -> None:
        call = self._begin("nodepool_status", name)
        self._merge(self.nodepools, name, status)
        self.raise_after(call)

    def nodeclass_status(self, name: str, status: Manifest) -> None:
        call = self._begin("nodeclass_status", name)
        self._merge(self.nodeclasses, name, status)
        self.raise_after(call)

    def event(self, kind: str, name: str, reason: str, message: str, *, warning: bool = False) -> None:
        call = self._begin("event", kind, name, reason)
        event = Event(kind, name, reason, message, warning)
        if event not in self.events:
            self.events.append(event)
        self.raise_after(call)

    def _begin(self, method: str, *about: str) -> Call:
        call = Call(method, about)
        self.calls.append(call)
        self.raise_before(call)
        return call

    def _created(self, manifest: Manifest) -> dict[str, Any]:
        given = {"uid": str(uuid.uuid5(uuid.NAMESPACE_OID, manifest["metadata"]["name"])), "generation": 1}
        moment = {"creationTimestamp": format_time(self.clock())}
        body = {name: part for name, part in manifest.items() if name != "status"}
        return {**body, "metadata": {**manifest["metadata"], **given, **moment}}

    def _merge(self, objects: dict[str, dict[str, Any]], name: str, status: Manifest) -> None:
        there = objects.get(name)
        if there is not None:
            objects[name] = {
                **there,
                "status": merged_status(there.get("status") or {}, status, self.clock()),
            }
