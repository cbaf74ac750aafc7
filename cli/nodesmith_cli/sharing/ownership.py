"""Which objects of a cluster belong to nodesmith, and which to other software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer, NotServed
from nodesmith.adapters.kubernetes.cluster import karpenter_runs
from nodesmith.model.apimachinery.labels import NODECLASS, NODEPOOL
from nodesmith.model.karpenter.ownership import KARPENTERS_LEASE, is_foreign, is_karpenters, provider_id
from nodesmith.observation.mirror import (
    NODE_OVERLAYS,
    NODE_TEMPLATES,
    NODECLAIMS,
    NODECLASSES,
    NODEPOOLS,
    NODES,
    PROVISIONERS,
)
from nodesmith_formats.kubernetes.objects import dig, name_of

Manifest = Mapping[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SHARED_CRDS = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh")
AUTO_MODE_CRD = "nodeclasses.eks.amazonaws.com"
OWN_CRDS = (
    "ec2nodeclasses.karpenter.k8s.aws",
    "awsnodetemplates.karpenter.k8s.aws",
    "provisioners.karpenter.sh",
    "nodeoverlays.karpenter.sh",
)
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_KARPENTERS = "labelSelector=app.kubernetes.io%2Fname%3Dkarpenter"
LEASE_HELD = f"holds the lease {KARPENTERS_LEASE}"
_NAMESPACE, _FORWARDER = "/api/v1/namespaces/nodesmith", "nodesmith-forwarder"
_FORWARDER_DEPLOYMENTS = "/apis/apps/v1/namespaces/nodesmith/deployments"
_FORWARDER_SETTINGS = f"{_NAMESPACE}/configmaps"
_MANAGER = "app.kubernetes.io/managed-by"


@dataclass(frozen=True, slots=True)
class ClusterOwnership:
    """The state of a cluster. `crds` are the known CRDs that exist, by name, each with its manager or "".

    `karpenter` are the signs that a Karpenter controller is running, each as the end of a sentence.
    """

    crds: Mapping[str, str]
    karpenter: tuple[str, ...] = ()
    nodepools: tuple[Manifest, ...] = ()
    foreign_nodepools: tuple[Manifest, ...] = ()
    nodeclaims: tuple[Manifest, ...] = ()
    karpenters_nodeclaims: tuple[Manifest, ...] = ()
    foreign_nodeclaims: tuple[Manifest, ...] = ()
    nodes: tuple[Manifest, ...] = ()
    """The Nodes of our NodePools, without those of Karpenter's NodeClaims."""
    provisioners: tuple[Manifest, ...] = ()
    nodeclasses: tuple[Manifest, ...] = ()
    nodetemplates: tuple[Manifest, ...] = ()
    nodeoverlays: tuple[Manifest, ...] = ()

    @property
    def has_foreign_crds(self) -> bool:
        """True if other software owns the CRDs of NodePool and NodeClaim, so that they must not be changed."""
        managed = AUTO_MODE_CRD in self.crds or any(self.crds.get(name) == "eks" for name in SHARED_CRDS)
        return managed or bool(self.foreign_nodepools or self.foreign_nodeclaims)


def read_ownership(server: ApiServer, now: datetime) -> ClusterOwnership:
    """Read the cluster, without changing it. Raises Transient, Rejected."""
    pools, claims = listed(server, NODEPOOLS.path), listed(server, NODECLAIMS.path)
    karpenters = tuple(claim for claim in claims if not is_foreign(claim) and is_karpenters(claim))
    theirs = {provider_id(nodepool) for nodepool in karpenters} - {""}
    return ClusterOwnership(
        crds=_crds(server),
        karpenter=tuple(_karpenter(server, now)),
        nodepools=tuple(pool for pool in pools if not is_foreign(pool)),
        foreign_nodepools=tuple(filter(is_foreign, pools)),
        nodeclaims=tuple(claim for claim in claims if not is_foreign(claim) and not is_karpenters(claim)),
        karpenters_nodeclaims=karpenters,
        foreign_nodeclaims=tuple(filter(is_foreign, claims)),
        nodes=tuple(node for node in listed(server, NODES.path) if _is_our_node(node, theirs)),
        provisioners=listed(server, PROVISIONERS.path),
        nodeclasses=listed(server, NODECLASSES.path),
        nodetemplates=listed(server, NODE_TEMPLATES.path),
        nodeoverlays=listed(server, NODE_OVERLAYS.path),
    )


def observes(server: ApiServer) -> bool:
    """Return whether nodesmith's forwarder only observes the cluster, so that NodePools are not nodesmith's."""
    deployment = server.get(f"{_FORWARDER_DEPLOYMENTS}/{_FORWARDER}") or {}
    containers = dig(deployment, "spec", "template", "spec", "containers") or ()
    sources = (source for container in containers for source in container.get("envFrom") or ())
    names = {name for source in sources if (name := (source.get("configMapRef") or {}).get("name"))}
    found = (server.get(f"{_FORWARDER_SETTINGS}/{name}") or {} for name in names)
    return any((config_map.get("data") or {}).get("OBSERVE") == "true" for config_map in found)


def is_installed(server: ApiServer) -> bool:
    """Return whether the cluster has nodesmith's namespace: it is removed after NodePools and nodes."""
    return server.get(_NAMESPACE) is not None


def listed(server: ApiServer, path: str, selector: str = "") -> tuple[Manifest, ...]:
    """Return all objects of a kind, or none if the API server does not serve it. Raises Transient, Rejected."""
    try:
        return tuple(item for page in server.pages(path, selector) for item in page.get("items") or ())
    except NotServed:
        return ()


def _crds(server: ApiServer) -> dict[str, str]:
    found = {name: server.get(f"{CRDS}/{name}") for name in (*SHARED_CRDS, *OWN_CRDS, AUTO_MODE_CRD)}
    labels = {name: crd["metadata"].get("labels") or {} for name, crd in found.items() if crd is not None}
    return {name: str(held.get(_MANAGER) or "").lower() for name, held in labels.items()}


def _karpenter(server: ApiServer, now: datetime) -> Iterator[str]:
    if karpenter_runs(server, now):
        yield LEASE_HELD
    for deployment in listed(server, _DEPLOYMENTS, _KARPENTERS):
        if (deployment.get("spec") or {}).get("replicas", 1):
            yield f"is Deployment {deployment['metadata']['namespace']}/{name_of(deployment)}"


def _is_our_node(node: Manifest, karpenters: set[str]) -> bool:
    labels, spec = node["metadata"].get("labels") or {}, node.get("spec") or {}
    return NODEPOOL in labels and NODECLASS in labels and spec.get("providerID") not in karpenters
