"""The Cluster port on an API server: NodeClaims, node registration, conditions and events, and reading all of it.

Each write reads the object, compares it, and sends a merge patch with the resourceVersion that it read. Nothing is
written if there is no difference. If the object has changed meanwhile, it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Expired, NotServed
from nodesmith.adapters.kubernetes.events import EventRecorder
from nodesmith.adapters.kubernetes.evictions import delete, evict
from nodesmith.adapters.kubernetes.writes import (
    OLDER_PATHS,
    PATHS,
    clear_nominations,
    difference,
    generation_of,
    is_left_of,
    is_of,
    merged_status,
    nominate,
    object_path,
    patched_node,
    with_finalizers,
    without_finalizer,
)
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER, TERMINATION_FINALIZER
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.evictions import Eviction, PodOnNode
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.observation.mirror import (
    ASKERS,
    LEASES,
    NODE_TEMPLATES,
    NODECLASSES,
    NODEPOOLS,
    PODS,
    PROVISIONERS,
    WATCHED,
    Mirror,
    WatchedKind,
    observed,
)
from nodesmith.observation.observed import ConvertedManifests, Observed, converted_manifests
from nodesmith.observation.reduction.objects import reduce_custom
from nodesmith.observation.workloads import watched_kinds

Manifest = Mapping[str, Any]
_ATTEMPTS = 5


class ApiCluster:
    """One cluster's API server. Raises Transient or, with the server's own message, Rejected.

    Kept from run to run, it repeats Events in fewer calls.
    """

    def __init__(
        self, server: ApiServer, clock: Callable[[], datetime], metrics: Metrics | None = None
    ) -> None:
        self._server = server
        self._clock = clock
        self._metrics = metrics or Metrics()
        self._events = EventRecorder(server)

    def nodepools_and_nodeclasses(self) -> ConvertedManifests:
        """Return NodePools, EC2NodeClasses, Provisioners and AWSNodeTemplates. Kinds not installed have no objects."""
        kinds = NODEPOOLS, NODECLASSES, PROVISIONERS, NODE_TEMPLATES
        return converted_manifests(observed([read_all(self._server, kind) for kind in kinds]))

    def nodeclaim(self, name: str) -> Manifest | None:
        """Return a NodeClaim as a snapshot holds it, or None if it does not exist."""
        nodeclaim = self._server.get(object_path("NodeClaim", name))
        return None if nodeclaim is None else reduce_custom(nodeclaim)

    def has_node(self, name: str, provider_id: str) -> bool:
        """Return whether a Node of this name belongs to the instance with this provider id."""
        node = self._server.get(object_path("Node", name))
        return node is not None and is_of(node, provider_id)

    def apply_nodeclaim(self, manifest: Manifest, *, create: bool = True) -> None:
        """Create a claim, or update labels, annotations and finalizers of an existing one; then update its status.

        The spec is immutable, so it is written only on creation. Without `create`, a missing claim is ignored.
        """
        name = manifest["metadata"]["name"]
        current: Manifest | None = self._server.get(object_path("NodeClaim", name))
        if current is None and not create:
            return
        current = current or self._create("NodeClaim", manifest)
        current = self._update(
            "NodeClaim", name, lambda there: _with_metadata(there, manifest["metadata"]), there=current
        )
        if manifest.get("status"):
            self._update_status("NodeClaim", name, manifest["status"], current)

    def delete_nodeclaim(self, name: str) -> None:
        """Delete a claim and remove our finalizer. The caller has already terminated its instance."""
        path = object_path("NodeClaim", name)
        if self._server.delete(path) is not None:
            self._update("NodeClaim", name, _released)

    def request_deletion(self, kind: str, name: str, provider_id: str = "") -> None:
        """Delete a NodeClaim or Node that our finalizer holds. If the finalizer is missing, add it first."""

        def held(current: Manifest) -> Manifest | None:
            is_another = kind == "Node" and not is_of(current, provider_id)
            if is_another or current["metadata"].get("deletionTimestamp"):
                return None
            return {**current, "metadata": with_finalizers(current["metadata"], [TERMINATION_FINALIZER])}

        written = self._update(kind, name, held)
        if written is not None:
            self._delete(kind, written)

    def release_node(self, name: str, provider_id: str) -> Sequence[str]:
        """Delete the Node of a terminated instance and remove our finalizer. Return the remaining finalizers."""
        current = self._server.get(object_path("Node", name))
        if current is None or not is_left_of(current, provider_id):
            return ()
        if not current["metadata"].get("deletionTimestamp"):
            self._delete("Node", current)
            current = None
        written = self._update(
            "Node",
            name,
            lambda node: _released(node) if is_left_of(node, provider_id) else None,
            there=current,
        )
        return tuple(map(str, written["metadata"].get("finalizers") or ())) if written is not None else ()

    def register_node(self, name: str, patch: NodePatch) -> bool:
        """Patch a Node to match its claim, in one write.

        Return False if the Node is gone or a Node of another instance has its name.
        """
        owner = self._server.get(object_path("NodeClaim", patch.owner)) if patch.owner else None
        return self._update("Node", name, lambda there: patched_node(there, patch, owner)) is not None

    def evict(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Evict pods as far as their disruption budgets allow. Return the outcomes by namespace/name."""
        return evict(self._server, pods, answered=self._count_eviction)

    def _count_eviction(self, status: int) -> None:
        # Karpenter's label value, although the API server returns 201.
        code = "200" if status < 400 else str(status)
        self._metrics.count("pods_eviction_requests_total", code=code)

    def delete_pods(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        """Delete pods regardless of their disruption budgets. Return the outcomes by namespace/name."""
        return delete(self._server, pods)

    def nominate(self, node: str, pods: Sequence[str]) -> None:
        """Nominate pods (namespace/name) for a Node. Pods that are gone, bound or already nominated are skipped."""
        nominate(self._server, node, pods)

    def clear_nominations(self, node: str, pods: Sequence[str]) -> None:
        """Clear the nominations of pods (namespace/name) for a Node.

        Pods that are bound or nominated for another Node are skipped.
        """
        clear_nominations(self._server, node, pods)

    def merge_status(self, kind: str, name: str, status: Manifest) -> None:
        """Merge `status` into an object's status, and conditions by type. A missing object is ignored."""
        if self._update_status(kind, name, status) is None and kind in OLDER_PATHS:
            self._update_status(kind, name, status, older=True)

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        """Merge annotations into those of a NodePool or EC2NodeClass. A missing object is ignored."""
        self._update(kind, name, lambda current: _with_metadata(current, {"annotations": annotations}))

    def karpenter_runs(self) -> bool:
        """Return whether a Karpenter controller of the cluster holds the lease of its leader election."""
        return karpenter_runs(self._server, self._clock())

    def release_nodeclass(self, name: str) -> None:
        """Remove Karpenter's finalizer from an EC2NodeClass if it is being deleted."""

        def released(manifest: Manifest) -> Manifest | None:
            is_deleted = manifest["metadata"].get("deletionTimestamp")
            return without_finalizer(manifest, NODECLASS_FINALIZER) if is_deleted else None

        self._update("EC2NodeClass", name, released)

    def publish(self, events: Sequence[ObjectEvent]) -> None:
        """Publish Events, several at once. Repeating an Event updates its time."""
        self._events.publish(events, self._clock())

    def _create(self, kind: str, manifest: Manifest) -> Manifest | None:
        body = {name: part for name, part in manifest.items() if name != "status"}
        try:
            return self._server.create(PATHS[kind], body)
        except Conflict:
            return None  # created by another run meanwhile: the same name means the same claim

    def _delete(self, kind: str, manifest: Manifest) -> None:
        with suppress(Conflict):  # another object has this name by now
            self._server.delete(object_path(kind, manifest["metadata"]["name"]), manifest["metadata"]["uid"])

    def _update_status(
        self, kind: str, name: str, status: Manifest, there: Manifest | None = None, *, older: bool = False
    ) -> Manifest | None:
        def wanted(there: Manifest) -> Manifest:
            current = there.get("status") or {}
            return {**there, "status": merged_status(current, status, self._clock(), generation_of(there))}

        return self._update(kind, name, wanted, "/status", there, older=older)

    def _update(
        self,
        kind: str,
        name: str,
        wanted: Callable[[Manifest], Manifest | None],
        subresource: str = "",
        there: Manifest | None = None,
        *,
        older: bool = False,
    ) -> Manifest | None:
        """Update an object to what `wanted` returns, and return the result.

        Return None if the object does not exist or `wanted` returns None. `there` is the object if it has just been
        read.
        """
        path = object_path(kind, name, older=older)
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
        raise Transient(f"{kind}/{name}: changed during each of {_ATTEMPTS} attempts to write it", "Conflict")


def _released(manifest: Manifest) -> Manifest:
    return without_finalizer(manifest, TERMINATION_FINALIZER)


def _with_metadata(current: Manifest, new: Manifest) -> Manifest:
    metadata = dict(current["metadata"])
    for part in ("labels", "annotations"):
        if new.get(part):
            metadata[part] = {**(metadata.get(part) or {}), **new[part]}
    return {**current, "metadata": with_finalizers(metadata, new.get("finalizers") or ())}


_READ_ATTEMPTS = 3


class Observer:
    """Lists the objects that the forwarder would watch. Pages are reduced as they arrive, to keep memory use low."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def observe(self) -> Observed:
        """Return all objects. A custom kind that is not installed has none. Raises Transient."""
        mirrors: dict[str, Mirror] = {}
        for kind in WATCHED:
            mirrors[kind.name] = read_all(self._server, kind) if _is_read(kind, mirrors) else Mirror(kind)
        return observed(mirrors.values())


def _is_read(kind: WatchedKind, mirrors: Mapping[str, Mirror]) -> bool:
    """Return whether decisions read a kind, judged by the objects of the kinds before it."""
    if kind.claimed:
        return any(pod.devices for pod in mirrors[PODS.name].objects.values())
    return not kind.referred or kind.kind in watched_kinds(
        *(mirrors[a.name].objects.values() for a in ASKERS)
    )


def read_all(server: ApiServer, kind: WatchedKind) -> Mirror:
    """Return all objects of one kind. A custom kind that is not installed has none. Raises Transient."""
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return _listed(server, kind)
        except Expired:
            continue
    return _listed(server, kind)


def _listed(server: ApiServer, kind: WatchedKind) -> Mirror:
    mirror = Mirror(kind)
    for path in kind.paths:
        try:
            for page in server.pages(path, kind.selector):
                for manifest in page.get("items") or ():
                    mirror.put(manifest)
        except NotServed:
            if not kind.custom:
                raise
        except Transient as error:
            if not is_ungranted(kind, error):
                raise
        else:
            break
    return mirror


def is_ungranted(kind: WatchedKind, error: Exception) -> bool:
    """Return whether reading a kind failed because the cluster has the roles of an earlier release."""
    return kind.newer and isinstance(error, Transient) and error.code == "Forbidden"


_PATIENCE = timedelta(minutes=1)
"""How long an expired lease counts as held, because clocks differ and another replica may be about to take it."""


def karpenter_runs(server: ApiServer, now: datetime) -> bool:
    """Return whether a Karpenter controller holds its lease, in any namespace. Raises Transient, Rejected."""
    pages = server.pages(LEASES.path, LEASES.selector)
    return any(is_held(lease, now) for page in pages for lease in page.get("items") or ())


def is_held(lease: Mapping[str, Any], now: datetime) -> bool:
    """Return whether a lease has a holder that has renewed it in time."""
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    if not spec.get("holderIdentity") or not renewed:
        return False
    term = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 0))
    return now - parse_time(renewed) < term + _PATIENCE
