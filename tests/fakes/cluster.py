"""A cluster in memory: the state that an API server would keep, without the server."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from nodesmith.adapters.kubernetes.evictions import ends_by, runs_on
from nodesmith.adapters.kubernetes.writes import (
    generation_of,
    is_left_of,
    is_of,
    merged_status,
    patched_node,
    with_finalizers,
    without_finalizer,
)
from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER, TERMINATION_FINALIZER
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.kubernetes.evictions import Evicted, Eviction, Gone, PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.observation.observed import ConvertedManifests, Observed, converted_manifests
from nodesmith.observation.reduction.objects import reduce_custom
from tests.fakes.cloud import Call
from tests.fakes.disruptions import counted, ending, ends_at, guarding, is_ending, is_ready, refusal

Manifest = Mapping[str, Any]
T = TypeVar("T")


def reduced(reduce: Callable[[Any], T], manifests: Iterable[Manifest]) -> list[T]:
    """Return what a forwarder keeps of manifests: the same objects, which must not be changed, for the same content."""
    return [_reduced(reduce, pickle.dumps(manifest)) for manifest in manifests]


@lru_cache(maxsize=5000)
def _reduced(reduce: Callable[[Any], T], pickled: bytes) -> T:
    return reduce(pickle.loads(pickled))  # noqa: S301


def _nothing(call: Call) -> None:
    """Do nothing."""


@dataclass(slots=True)
class FakeCluster:
    """A Cluster. Add Nodes, NodePools and EC2NodeClasses as manifests, by name. `calls` are the writes.

    `raise_before` and `raise_after` are called with each Call and may raise: before it has an effect, or after it.
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodepools: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodeclasses: dict[str, dict[str, Any]] = field(default_factory=dict)
    provisioners: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodetemplates: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodeoverlays: dict[str, dict[str, Any]] = field(default_factory=dict)
    quotas: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodeclaims: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By namespace/name, like their budgets."""
    poddisruptionbudgets: dict[str, dict[str, Any]] = field(default_factory=dict)
    capacitybuffers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By namespace/name, like the following."""
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    podtemplates: dict[str, dict[str, Any]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    """What left a disruption budget with fewer healthy pods than it needs; evictions never do."""
    runs: Callable[[str], bool] = lambda _: True
    """Whether a Node's machine still exists. Pods on a machine that is gone are unhealthy, whatever their status."""
    karpenter: bool = False
    """Whether a Karpenter controller holds its lease."""
    events: list[ObjectEvent] = field(default_factory=list)
    clock: Callable[[], datetime] = lambda: datetime(2026, 11, 21, 8, tzinfo=UTC)
    raise_before: Callable[[Call], None] = _nothing
    raise_after: Callable[[Call], None] = _nothing
    calls: list[Call] = field(default_factory=list)

    def nodepools_and_nodeclasses(self) -> ConvertedManifests:
        call = Call("nodepools_and_nodeclasses", ())
        self.raise_before(call)
        observed = Observed(
            nodepools=reduced(reduce_custom, self.nodepools.values()),
            nodeclasses=reduced(reduce_custom, self.nodeclasses.values()),
            provisioners=reduced(reduce_custom, self.provisioners.values()),
            awsnodetemplates=reduced(reduce_custom, self.nodetemplates.values()),
        )
        self.raise_after(call)
        return converted_manifests(observed)

    def nodeclaim(self, name: str) -> Manifest | None:
        call = Call("nodeclaim", (name,))
        self.raise_before(call)
        there = self.nodeclaims.get(name)
        self.raise_after(call)
        return None if there is None else reduce_custom(there)

    def has_node(self, name: str, provider_id: str) -> bool:
        call = Call("has_node", (name,))
        self.raise_before(call)
        self.raise_after(call)
        return name in self.nodes and is_of(self.nodes[name], provider_id)

    def apply_nodeclaim(self, manifest: Manifest, *, create: bool = True) -> None:
        name = manifest["metadata"]["name"]
        call = self._begin("apply_nodeclaim", name)
        if create or name in self.nodeclaims:
            self._bring(name, manifest)
        self.raise_after(call)

    def _bring(self, name: str, manifest: Manifest) -> None:
        there = self.nodeclaims.get(name) or self._created(manifest)
        metadata = with_finalizers(there["metadata"], manifest["metadata"].get("finalizers") or ())
        for part in ("labels", "annotations"):
            if manifest["metadata"].get(part):
                metadata[part] = {**(metadata.get(part) or {}), **manifest["metadata"][part]}
        current, wanted = there.get("status") or {}, manifest.get("status") or {}
        status = merged_status(current, wanted, self.clock(), generation_of(there))
        self.nodeclaims[name] = {**there, "metadata": metadata, **({"status": status} if status else {})}

    def delete_nodeclaim(self, name: str) -> None:
        call = self._begin("delete_nodeclaim", name)
        self.delete("NodeClaim", name)
        self._release("NodeClaim", name)
        self.raise_after(call)

    def request_deletion(self, kind: str, name: str, provider_id: str = "") -> None:
        call = self._begin("request_deletion", kind, name)
        objects = self._objects(kind)
        there = objects.get(name)
        if there is not None and (kind != "Node" or is_of(there, provider_id)):
            metadata = with_finalizers(there["metadata"], [TERMINATION_FINALIZER])
            objects[name] = {**there, "metadata": metadata}
            self.delete(kind, name)
        self.raise_after(call)

    def release_node(self, name: str, provider_id: str) -> Sequence[str]:
        call = self._begin("release_node", name)
        there = self.nodes.get(name)
        is_meant = there is not None and is_left_of(there, provider_id)
        if is_meant:
            self.delete("Node", name)
            self._release("Node", name)
        self.raise_after(call)
        left = self.nodes.get(name) if is_meant else None
        return tuple(left["metadata"].get("finalizers") or ()) if left is not None else ()

    def evict(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        call = self._begin("evict", *(each.pod for each in pods))
        answers = {each.pod: self._end(each, forced=False) for each in pods}
        self.raise_after(call)
        return answers

    def delete_pods(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        call = self._begin("delete_pods", *(each.pod for each in pods))
        answers = {each.pod: self._end(each, forced=True) for each in pods}
        self.raise_after(call)
        return answers

    def register_node(self, name: str, patch: NodePatch) -> bool:
        call = self._begin("register_node", name)
        there = self.nodes.get(name)
        owner = self.nodeclaims.get(patch.owner)
        patched = patched_node(there, patch, owner) if there is not None else None
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

    def clear_nominations(self, node: str, pods: Sequence[str]) -> None:
        call = self._begin("clear_nominations", node, *pods)
        for key in pods:
            status = self.pods.get(key, {}).get("status", {})
            if status.get("nominatedNodeName") == node:
                del status["nominatedNodeName"]
        self.raise_after(call)

    def merge_status(self, kind: str, name: str, status: Manifest) -> None:
        call = self._begin("merge_status", kind, name)
        objects = self._objects(kind)
        there = objects.get(name)
        if there is not None:
            current = there.get("status") or {}
            merged = merged_status(current, status, self.clock(), generation_of(there))
            objects[name] = {**there, "status": merged}
        self.raise_after(call)

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        call = self._begin("annotate", kind, name)
        objects = self._objects(kind)
        if name in objects:
            metadata = objects[name]["metadata"]
            said = {**(metadata.get("annotations") or {}), **annotations}
            objects[name] = {**objects[name], "metadata": {**metadata, "annotations": said}}
        self.raise_after(call)

    def karpenter_runs(self) -> bool:
        self.raise_after(self._begin("karpenter_runs"))
        return self.karpenter

    def release_nodeclass(self, name: str) -> None:
        call = self._begin("release_nodeclass", name)
        there = self.nodeclasses.get(name)
        if there is not None and there["metadata"].get("deletionTimestamp"):
            self.nodeclasses[name] = without_finalizer(there, NODECLASS_FINALIZER)
            if not self.nodeclasses[name]["metadata"].get("finalizers"):
                del self.nodeclasses[name]
        self.raise_after(call)

    def publish(self, events: Sequence[ObjectEvent]) -> None:
        call = self._begin("publish", *map(str, events))
        for event in events:
            self._note(event)
        self.raise_after(call)

    def delete(self, kind: str, name: str) -> None:
        """Delete a Node or NodeClaim as any user may; its finalizers delay the deletion."""
        objects = self._objects(kind)
        there = objects.get(name)
        if there is not None and not there["metadata"].get("finalizers"):
            del objects[name]
        elif there is not None:
            metadata = there["metadata"]
            is_new = "deletionTimestamp" not in metadata and "generation" in metadata
            generation = {"generation": metadata["generation"] + 1} if is_new else {}
            moment = {"deletionTimestamp": format_time(self.clock()), **metadata, **generation}
            objects[name] = {**there, "metadata": moment}

    def end_pods(self) -> None:
        """Act as the kubelets: remove pods whose grace period is over."""
        for key, pod in list(self.pods.items()):
            if is_ending(pod) and ends_at(pod) <= self.clock():
                del self.pods[key]

    def _end(self, wanted: PodOnNode, *, forced: bool) -> Eviction:
        pod = self.pods.get(wanted.pod)
        if pod is None or not runs_on(pod, wanted.node):
            return Gone()
        if ends_by(pod, wanted.grace_seconds):
            return Evicted(before=True)
        refused = None if forced else refusal(pod, self.pods.values(), self.poddisruptionbudgets.values())
        if refused is not None:
            return refused
        was_healthy = is_ready(pod) and not is_ending(pod) and self.runs(wanted.node)
        left = ending(pod, wanted.grace_seconds, self.clock())
        if left is None:
            del self.pods[wanted.pod]
        else:
            self.pods[wanted.pod] = left
        if was_healthy:
            self._note_violations(pod)
        return Evicted()

    def _note_violations(self, pod: Manifest) -> None:
        for budget in guarding(pod, self.poddisruptionbudgets.values()):
            healthy, desired = counted(budget, self.pods.values())
            if healthy < desired:
                names = f"{budget['metadata']['name']} by {pod['metadata']['name']}"
                self.violations.append(f"{names}: {healthy} healthy pods of {desired}")

    def _note(self, event: ObjectEvent) -> None:
        if event not in self.events:
            self.events.append(event)

    def _release(self, kind: str, name: str) -> None:
        objects = self._objects(kind)
        if name in objects:
            objects[name] = without_finalizer(objects[name], TERMINATION_FINALIZER)
            if not objects[name]["metadata"].get("finalizers"):
                del objects[name]

    def _objects(self, kind: str) -> dict[str, dict[str, Any]]:
        return {
            "Node": self.nodes,
            "NodeClaim": self.nodeclaims,
            "NodePool": self.nodepools,
            "EC2NodeClass": self.nodeclasses,
            "Provisioner": self.provisioners,
            "AWSNodeTemplate": self.nodetemplates,
            "NodeOverlay": self.nodeoverlays,
            "CapacityBuffer": self.capacitybuffers,
            "CapacityQuota": self.quotas,
            "ProvisioningRequest": self.requests,
        }[kind]

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
