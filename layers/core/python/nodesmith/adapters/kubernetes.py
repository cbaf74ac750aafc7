"""The Cluster port on a real API server: NodeClaims, node registration, conditions and events.

Every write is read, compare, merge-patch with the resourceVersion that was read: what is already so is not written, and
what somebody changed meanwhile is looked at again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from nodesmith.adapters.apiserver import ApiServer
from nodesmith.adapters.nominations import nominate
from nodesmith.adapters.statuses import difference, merged_status, patched_node
from nodesmith.errors import Conflict, Transient
from nodesmith.model.nodes import NodePatch
from nodesmith.model.times import format_time

Manifest = Mapping[str, Any]
FINALIZER = "karpenter.sh/termination"
PATHS = {
    "Node": "/api/v1/nodes",
    "NodePool": "/apis/karpenter.sh/v1/nodepools",
    "NodeClaim": "/apis/karpenter.sh/v1/nodeclaims",
    "EC2NodeClass": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "Pod": "/api/v1/pods",
}
_EVENTS = "/api/v1/namespaces/{namespace}/events"
_CLUSTER_SCOPED_EVENTS = "default"  # the namespace of events about cluster-scoped objects
_ATTEMPTS = 5
_LONGEST_NAME_PART = 200  # names have 253 characters at most, an event's is its object's and a digest


class ApiCluster:
    """One cluster's API server, for writing. Raises Transient or, with the server's own message, Rejected."""

    def __init__(self, server: ApiServer, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._server = server
        self._clock = clock

    def apply_nodeclaim(self, manifest: Manifest) -> None:
        """Create the claim, or bring labels, annotations and finalizers of the one there up to date; then its status.

        Its spec is immutable, and therefore written at creation only.
        """
        name = manifest["metadata"]["name"]
        if self._server.get(_path("NodeClaim", name)) is None:
            self._create("NodeClaim", manifest)
        self._bring("NodeClaim", name, lambda there: _with_metadata(there, manifest["metadata"]))
        if manifest.get("status"):
            self._bring_status("NodeClaim", name, manifest["status"])

    def delete_nodeclaim(self, name: str) -> None:
        """Delete the claim and lift our finalizer: whoever asks has finished with its instance."""
        path = _path("NodeClaim", name)
        if self._server.delete(path) is not None:
            self._bring("NodeClaim", name, _without_finalizer)

    def register_node(self, name: str, patch: NodePatch) -> bool:
        """Bring a Node in line with its claim in one write; False when it is gone, or its name another's by now."""
        return self._bring("Node", name, lambda there: patched_node(there, patch))

    def nominate(self, node: str, pods: Sequence[str]) -> None:
        """Nominate pods (namespace/name) for a Node, but those gone, bound or nominated already."""
        nominate(self._server, node, pods)

    def nodepool_status(self, name: str, status: Manifest) -> None:
        """Merge into a NodePool's status; gone is fine."""
        self._bring_status("NodePool", name, status)

    def nodeclass_status(self, name: str, status: Manifest) -> None:
        """Merge into an EC2NodeClass's status; gone is fine."""
        self._bring_status("EC2NodeClass", name, status)

    def event(self, kind: str, name: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Publish an Event; the same one again moves its time, as long as the API server remembers it (an hour).

        A pod is named by `namespace/name`.
        """
        there = self._server.get(_path(kind, name)) or {}
        event = _event(kind, name, there, reason, message, "Warning" if warning else "Normal", self._clock())
        events = _EVENTS.format(namespace=quote(event["metadata"]["namespace"], safe=""))
        try:
            self._server.create(events, event)
        except Conflict:
            path = f"{events}/{quote(event['metadata']['name'], safe='')}"
            self._server.patch(path, {"lastTimestamp": event["lastTimestamp"]})

    def _create(self, kind: str, manifest: Manifest) -> None:
        body = {name: part for name, part in manifest.items() if name != "status"}
        try:
            self._server.create(PATHS[kind], body)
        except Conflict:
            return  # somebody was first, with the same name and therefore the same claim

    def _bring_status(self, kind: str, name: str, status: Manifest) -> None:
        def wanted(there: Manifest) -> Manifest:
            return {**there, "status": merged_status(there.get("status") or {}, status, self._clock())}

        self._bring(kind, name, wanted, "/status")

    def _bring(
        self, kind: str, name: str, wanted: Callable[[Manifest], Manifest | None], subresource: str = ""
    ) -> bool:
        """Turn an object into what `wanted` makes of it; False when it is not there, or `wanted` has no use for it."""
        path = _path(kind, name)
        for _ in range(_ATTEMPTS):
            there = self._server.get(path)
            if there is None:
                return False
            becomes = wanted(there)
            if becomes is None:
                return False
            patch = difference(there, becomes)
            if not patch:
                return True
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            patch["metadata"] = {**patch.get("metadata", {}), **version}
            try:
                return self._server.patch(path + subresource, patch) is not None
            except Conflict:
                continue
        raise Transient(f"{kind}/{name}: changed under each of {_ATTEMPTS} attempts to write it", "Conflict")


def _path(kind: str, name: str) -> str:
    """Names come from outside, and are no paths. A pod's is `namespace/name`."""
    if kind == "Pod":
        namespace, _, name = name.partition("/")
        return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"{PATHS[kind]}/{quote(name, safe='')}"


def _with_metadata(there: Manifest, wanted: Manifest) -> Manifest:
    metadata = dict(there["metadata"])
    for part in ("labels", "annotations"):
        if wanted.get(part):
            metadata[part] = {**(metadata.get(part) or {}), **wanted[part]}
    missing = [f for f in wanted.get("finalizers") or () if f not in (metadata.get("finalizers") or ())]
    if missing and not metadata.get("deletionTimestamp"):  # a deleting object takes no new finalizers
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), *missing]
    return {**there, "metadata": metadata}


def _without_finalizer(there: Manifest) -> Manifest:
    kept = [finalizer for finalizer in there["metadata"].get("finalizers") or () if finalizer != FINALIZER]
    if kept == (there["metadata"].get("finalizers") or []):
        return there
    return {**there, "metadata": {**there["metadata"], "finalizers": kept}}


def _event(
    kind: str, about: str, there: Manifest, reason: str, message: str, weight: str, now: datetime
) -> dict[str, Any]:
    group = PATHS[kind].removeprefix("/apis/").removeprefix("/api/")
    namespace, _, name = about.rpartition("/")
    uid = (there.get("metadata") or {}).get("uid", "")
    digest = hashlib.sha256("\0".join((kind, about, uid, reason, message)).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{name[:_LONGEST_NAME_PART].rstrip('.-')}.{digest}",
            "namespace": namespace or _CLUSTER_SCOPED_EVENTS,
        },
        "involvedObject": {
            "apiVersion": group.rpartition("/")[0],
            "kind": kind,
            "name": name,
            "uid": uid,
            **({"namespace": namespace} if namespace else {}),
        },
        "reason": reason,
        "message": message[:1024],
        "type": weight,
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
        "source": {"component": "nodesmith"},
        "reportingComponent": "nodesmith",
        "reportingInstance": "nodesmith",
    }
