"""The Cluster port on a real API server: NodeClaims, node registration, conditions and events.

Every write is read, compare, merge-patch with the resourceVersion that was read: what is already so is not written, and
what somebody changed meanwhile is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.adapters.kubernetes.events import publish
from nodesmith.adapters.kubernetes.evictions import delete, evict
from nodesmith.adapters.kubernetes.leases import karpenter_runs
from nodesmith.adapters.kubernetes.nominations import clear_nominations, nominate
from nodesmith.adapters.kubernetes.observer import read_all
from nodesmith.adapters.kubernetes.paths import PATHS, object_path
from nodesmith.adapters.kubernetes.statuspatches import (
    difference,
    is_left_of,
    is_of,
    merged_status,
    patched_node,
    with_finalizers,
    without_finalizer,
)
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER, TERMINATION_FINALIZER
from nodesmith.model.kubernetes.events import ObjectEvent
from nodesmith.model.kubernetes.evictions import Eviction, PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.observation.mirror import NODE_TEMPLATES, NODECLASSES, NODEPOOLS, PROVISIONERS, observed
from nodesmith.observation.olderversions import Todays, todays
from nodesmith.observation.reduction.objects import reduce_custom

Manifest = Mapping[str, Any]
_ATTEMPTS = 5


class ApiCluster:
    """One cluster's API server. Raises Transient or, with the server's own message, Rejected."""

    def __init__(
        self, server: ApiServer, clock: Callable[[], datetime], metrics: Metrics | None = None
    ) -> None:
        self._server = server
        self._clock = clock
        self._metrics = metrics or Metrics()

    def nodepools_and_nodeclasses(self) -> Todays:
        """List NodePools, EC2NodeClasses, Provisioners and AWSNodeTemplates; a kind that is not installed has none."""
        kinds = NODEPOOLS, NODECLASSES, PROVISIONERS, NODE_TEMPLATES
        return todays(observed([read_all(self._server, kind) for kind in kinds]))

    def nodeclaim(self, name: str) -> Manifest | None:
        """Read a NodeClaim as a snapshot holds it."""
        there = self._server.get(object_path("NodeClaim", name))
        return None if there is None else reduce_custom(there)

    def apply_nodeclaim(self, manifest: Manifest, *, create: bool = True) -> None:
        """Create the claim, or bring labels, annotations and finalizers of the one there up to date; then its status.

        Its spec is immutable, and therefore written at creation only.
        """
        name = manifest["metadata"]["name"]
        there: Manifest | None = self._server.get(object_path("NodeClaim", name))
        if there is None and not create:
            return
        there = there or self._create("NodeClaim", manifest)
        there = self._bring(
            "NodeClaim", name, lambda there: _with_metadata(there, manifest["metadata"]), there=there
        )
        if manifest.get("status"):
            self._bring_status("NodeClaim", name, manifest["status"], there)

    def delete_nodeclaim(self, name: str) -> None:
        """Delete the claim and lift our finalizer: whoever asks has finished with its instance."""
        path = object_path("NodeClaim", name)
        if self._server.delete(path) is not None:
            self._bring("NodeClaim", name, _released)

    def request_deletion(self, kind: str, name: str, provider_id: str = "") -> None:
        """Delete a NodeClaim or Node that our finalizer holds, and put it on before where somebody has taken it off."""

        def held(there: Manifest) -> Manifest | None:
            is_another = kind == "Node" and not is_of(there, provider_id)
            if is_another or there["metadata"].get("deletionTimestamp"):
                return None
            return {**there, "metadata": with_finalizers(there["metadata"], [TERMINATION_FINALIZER])}

        there = self._bring(kind, name, held)
        if there is not None:
            self._delete(kind, there)

    def release_node(self, name: str, provider_id: str) -> Sequence[str]:
        """Delete a Node whose instance we have finished with, and lift our finalizer; return those of others."""
        there = self._server.get(object_path("Node", name))
        if there is None or not is_left_of(there, provider_id):
            return ()
        if not there["metadata"].get("deletionTimestamp"):
            self._delete("Node", there)
            there = None
        left = self._bring(
            "Node",
            name,
            lambda node: _released(node) if is_left_of(node, provider_id) else None,
            there=there,
        )
        return tuple(map(str, left["metadata"].get("finalizers") or ())) if left is not None else ()

    def register_node(self, name: str, patch: NodePatch) -> bool:
        """Bring a Node in line with its claim in one write; False when it is gone, or its name another's by now."""
        owner = self._server.get(object_path("NodeClaim", patch.owner)) if patch.owner else None
        return self._bring("Node", name, lambda there: patched_node(there, patch, owner)) is not None

    def evict(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Evict pods as far as their disruption budgets allow; gives what became of each, by namespace/name."""
        return evict(self._server, pods, answered=self._count_eviction)

    def _count_eviction(self, status: int) -> None:
        code = (
            "200" if status < 400 else str(status)
        )  # Karpenter's word for what the API server answers with 201
        self._metrics.count("pods_eviction_requests_total", code=code)

    def delete_pods(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Delete pods whatever their disruption budgets say; gives what became of each, by namespace/name."""
        return delete(self._server, pods)

    def nominate(self, node: str, pods: Sequence[str]) -> None:
        """Nominate pods (namespace/name) for a Node, but those gone, bound or nominated already."""
        nominate(self._server, node, pods)

    def clear_nominations(self, node: str, pods: Sequence[str]) -> None:
        """Clear the nominations of pods (namespace/name) for a Node; those bound or nominated otherwise are left."""
        clear_nominations(self._server, node, pods)

    def merge_status(self, kind: str, name: str, status: Manifest) -> None:
        """Merge into an object's status, conditions by type; gone is fine."""
        self._bring_status(kind, name, status)

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        """Merge annotations into a NodePool's or EC2NodeClass's; gone is fine."""
        self._bring(kind, name, lambda there: _with_metadata(there, {"annotations": annotations}))

    def karpenter_runs(self) -> bool:
        """Whether a Karpenter controller of the cluster holds its leader election's lease."""
        return karpenter_runs(self._server, self._clock())

    def release_nodeclass(self, name: str) -> None:
        """Lift Karpenter's finalizer from an EC2NodeClass that is being deleted; any other is left as it is."""

        def released(there: Manifest) -> Manifest | None:
            is_deleted = there["metadata"].get("deletionTimestamp")
            return without_finalizer(there, NODECLASS_FINALIZER) if is_deleted else None

        self._bring("EC2NodeClass", name, released)

    def publish(self, events: Sequence[ObjectEvent]) -> None:
        """Publish Events, several at once; the same one again moves its time."""
        publish(self._server, events, self._clock())

    def _create(self, kind: str, manifest: Manifest) -> Manifest | None:
        body = {name: part for name, part in manifest.items() if name != "status"}
        try:
            return self._server.create(PATHS[kind], body)
        except Conflict:
            return None  # somebody was first, with the same name and therefore the same claim

    def _delete(self, kind: str, there: Manifest) -> None:
        with suppress(Conflict):  # it is another object of that name by now
            self._server.delete(object_path(kind, there["metadata"]["name"]), there["metadata"]["uid"])

    def _bring_status(self, kind: str, name: str, status: Manifest, there: Manifest | None = None) -> None:
        def wanted(there: Manifest) -> Manifest:
            return {**there, "status": merged_status(there.get("status") or {}, status, self._clock())}

        self._bring(kind, name, wanted, "/status", there)

    def _bring(
        self,
        kind: str,
        name: str,
        wanted: Callable[[Manifest], Manifest | None],
        subresource: str = "",
        there: Manifest | None = None,
    ) -> Manifest | None:
        """Turn an object into what `wanted` makes of it; None when it is not there, or `wanted` has no use for it.

        `there` is the object as it has just been read, if it has.
        """
        path = object_path(kind, name)
        for _ in range(_ATTEMPTS):
            there = there or self._server.get(path)
            if there is None:
                return None
            becomes = wanted(there)
            if becomes is None:
                return None
            patch = difference(there, becomes)
            if not patch:
                return there
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            patch["metadata"] = {**patch.get("metadata", {}), **version}
            try:
                return self._server.patch(path + subresource, patch)
            except Conflict:
                there = None
        raise Transient(f"{kind}/{name}: changed under each of {_ATTEMPTS} attempts to write it", "Conflict")


def _released(there: Manifest) -> Manifest:
    return without_finalizer(there, TERMINATION_FINALIZER)


def _with_metadata(there: Manifest, wanted: Manifest) -> Manifest:
    metadata = dict(there["metadata"])
    for part in ("labels", "annotations"):
        if wanted.get(part):
            metadata[part] = {**(metadata.get(part) or {}), **wanted[part]}
    return {**there, "metadata": with_finalizers(metadata, wanted.get("finalizers") or ())}
