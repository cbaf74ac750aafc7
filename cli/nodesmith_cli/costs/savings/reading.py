"""The objects of a live cluster, read with GET requests only, and the kinds that the reader may not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Expired, NotServed
from nodesmith.errors import NodesmithError, Rejected, Transient
from nodesmith.model.apimachinery.quantities import NOTHING, QuantityError, Resources, parse_resources, total
from nodesmith.model.karpenter.ownership import provider_id
from nodesmith.observation.mirror import (
    BUDGETS,
    CSI_NODES,
    DAEMONSETS,
    NAMESPACES,
    NODECLASSES,
    NODEPOOLS,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    WatchedKind,
)
from nodesmith_cli.access.cluster import kinds_with, served
from nodesmith_cli.access.selecting import Selection
from nodesmith_formats.manifests.manifests import Document

Manifest = Mapping[str, Any]
USAGE_PATH = "/apis/metrics.k8s.io/v1beta1/pods"
_ATTEMPTS = 3
"""Listings of one kind that a slow reader may begin again because the continue token has expired."""
_FORBIDDEN = "Forbidden"
_UNREAD_OF_CONTAINERS = (
    "env envFrom command args livenessProbe readinessProbe startupProbe lifecycle volumeMounts securityContext"
).split()
_MEANINGS: Mapping[str, str] = {
    DAEMONSETS.kind: "the overhead of DaemonSets on new nodes is unknown, so they look cheaper than they are",
    NODEPOOLS.kind: "NodePools are assumed instead of the cluster's own",
    NODECLASSES.kind: "subnets in the zones of the present nodes are assumed",
    BUDGETS.kind: "no PodDisruptionBudget is respected, so more looks reachable than is",
    VOLUME_CLAIMS.kind: "pods with volumes may be planned for zones that their volumes cannot reach",
    VOLUMES.kind: "pods with volumes may be planned for zones that their volumes cannot reach",
    STORAGE_CLASSES.kind: "pods with unbound volumes may be planned for zones without such volumes",
    CSI_NODES.kind: "limits of attached volumes are those of the instance types",
    NAMESPACES.kind: "pod affinity that selects namespaces by label selects none",
}
_OTHERWISE = "it is treated as if there were none"
_AUTOSCALER = "cluster-autoscaler"


@dataclass(frozen=True, slots=True)
class Missing:
    """A kind that could not be read, why, and what that means for the figures."""

    kind: str
    reason: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What pods use now, by namespace/name. `fault` is the reason why nothing is known, or empty."""

    by_pod: Mapping[str, Resources]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that was read. `has_cluster_autoscaler` is True if a pod of it is running."""

    documents: tuple[Document, ...]
    missing: tuple[Missing, ...] = ()
    has_cluster_autoscaler: bool = False

    def of_kind(self, kind: str) -> list[Manifest]:
        """Return the manifests of a kind."""
        return [document.manifest for document in self.documents if document.manifest["kind"] == kind]

    def of_nodes(self, selection: Selection, selector: str) -> Cluster:
        """Return the cluster without the unselected nodes, their pods and their NodeClaims.

        Raises Rejected if no node is selected. `selector` is the text of the selection.
        """
        nodes = self.of_kind("Node")
        unselected = [
            node for node in nodes if not selection.has((node.get("metadata") or {}).get("labels") or {})
        ]
        if len(unselected) == len(nodes):
            raise Rejected(f"-l {selector[:80]}: matches none of the cluster's {len(nodes):,} nodes")
        names = {str(node["metadata"]["name"]) for node in unselected}
        ids = {provider_id(node) for node in unselected} - {""}
        return replace(self, documents=tuple(d for d in self.documents if not _is_of(d.manifest, names, ids)))


def _is_of(manifest: Manifest, nodes: Collection[str], provider_ids: Collection[str]) -> bool:
    """Return whether an object is one of these nodes, or a pod or NodeClaim of them."""
    match manifest["kind"]:
        case "Node":
            return str(manifest["metadata"]["name"]) in nodes
        case "Pod":
            return (manifest.get("spec") or {}).get("nodeName") in nodes
        case "NodeClaim":
            return provider_id(manifest) in provider_ids
    return False


def read_cluster(server: ApiServer, where: str) -> Cluster:
    """List every kind that decisions read. `where` names the cluster in messages.

    A kind that the reader may not list is reported and left out. Raises Rejected if that is Nodes or Pods, and
    Transient if the API server cannot be reached.
    """
    documents: list[Document] = []
    missing: list[Missing] = []
    autoscaler = False

    def allowed(kind: WatchedKind) -> list[dict[str, Any]]:
        try:
            return _listed(server, kind)
        except Transient as error:
            missing.append(_missing(kind, error))
            return []

    for kind, items in kinds_with(allowed):
        autoscaler = autoscaler or (kind is PODS and any(map(_is_autoscaler, items)))
        documents += (
            Document({**item, "kind": kind.kind}, where, n) for n, item in enumerate(items, start=1)
        )
    return Cluster(tuple(documents), tuple(missing), autoscaler)


def _listed(server: ApiServer, kind: WatchedKind) -> list[dict[str, Any]]:
    """Return the objects of a kind; none if its CRD is not installed. Raises Transient."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return [trimmed(item) for item in served(server, kind)]
        except Expired:
            if attempt == _ATTEMPTS:
                raise
    return []


def _missing(kind: WatchedKind, error: Transient) -> Missing:
    """Return what a forbidden kind means. Raises the error if it is another one, or if nothing works without it."""
    if error.code != _FORBIDDEN:
        raise error
    if kind in (NODES, PODS):
        raise Rejected(f"{error}; without {kind.kind}s nothing can be priced: grant list on them") from None
    return Missing(kind.kind, "may not be listed (403 Forbidden)", _MEANINGS.get(kind.kind, _OTHERWISE))


def trimmed(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the large parts that no decision reads, so that thousands of pods fit in memory."""
    metadata, spec, status = (item.get(part) for part in ("metadata", "spec", "status"))
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    if isinstance(status, dict):
        status.pop("images", None)
    for name in ("containers", "initContainers"):
        for container in (spec.get(name) if isinstance(spec, dict) else None) or ():
            for field in _UNREAD_OF_CONTAINERS if isinstance(container, dict) else ():
                container.pop(field, None)
    return item


def _is_autoscaler(pod: Manifest) -> bool:
    """Return whether a pod runs Cluster Autoscaler, regardless of its name in the chart."""
    images = [
        str(container.get("image") or "") for container in (pod.get("spec") or {}).get("containers") or ()
    ]
    return any(image.rpartition("/")[2].startswith(_AUTOSCALER) for image in images)


def read_usage(server: ApiServer) -> Usage:
    """Return what pods use now, by metrics-server. Never raises: without it, usage is unknown."""
    try:
        items = [item for page in server.pages(USAGE_PATH) for item in page.get("items") or ()]
    except NotServed:
        return Usage({}, "metrics-server is not installed")
    except Transient as error:
        reason = "may not be read (403 Forbidden)" if error.code == _FORBIDDEN else "does not answer"
        return Usage({}, f"metrics.k8s.io {reason}")
    except NodesmithError as error:
        return Usage({}, f"metrics.k8s.io: {error}")
    return Usage(dict(_used(items)))


def _used(items: Iterable[Manifest]) -> Iterator[tuple[str, Resources]]:
    for item in items:
        metadata = item.get("metadata") or {}
        try:
            parts = [parse_resources(container.get("usage")) for container in item.get("containers") or ()]
        except (QuantityError, AttributeError, TypeError):
            continue  # an unreadable sample counts as missing
        yield f"{metadata.get('namespace')}/{metadata.get('name')}", total(parts) if parts else NOTHING
