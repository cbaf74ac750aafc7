"""The kinds that a cluster serves before any CRD is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The field paths, from the object's root, that the scale subresource uses."""

    replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] | None = ("status", "labelSelector")


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind and how it is served. `versions[0]` is the version that is stored and preferred.

    `status` means that the status subresource exists: the main endpoint does not change the status, and the subresource
    changes nothing else. `schemas` and `columns` come from a CRD, by version.
    """

    group: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False
    scale: ScalePaths | None = None
    custom: bool = False
    singular: str = ""
    list_kind: str = ""
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    columns: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    selectable: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The plural with its group: `pods`, `nodepools.karpenter.sh`. Unique in a server."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind with its group, as error messages name it: `Pod`, `NodePool.karpenter.sh`."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def api_version(self, version: str = "") -> str:
        """Return `group/version`, by default of the stored version."""
        chosen = version or self.versions[0]
        return f"{self.group}/{chosen}" if self.group else chosen

    @property
    def listed_as(self) -> str:
        """The kind of a list of these objects."""
        return self.list_kind or f"{self.kind}List"


def _kind(
    api: str, kind: str, plural: str, flags: str = "", short: str = "", categories: str = ""
) -> Resource:
    """Return a built-in resource.

    Flags: n namespaced, s status subresource, g counts generations, r has replicas to scale.
    """
    group, _, version = api.rpartition("/")
    scale = ScalePaths() if "r" in flags else None
    return Resource(
        group=group,
        versions=(version,),
        kind=kind,
        plural=plural,
        namespaced="n" in flags,
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        status="s" in flags,
        generation="g" in flags,
        scale=scale,
        singular=kind.lower(),
    )


_RBAC = "rbac.authorization.k8s.io/v1"

BUILTIN: tuple[Resource, ...] = (
    _kind("v1", "ConfigMap", "configmaps", "n", "cm"),
    _kind("v1", "Event", "events", "n", "ev"),
    _kind("v1", "LimitRange", "limitranges", "n", "limits"),
    _kind("v1", "Namespace", "namespaces", "s", "ns"),
    _kind("v1", "Node", "nodes", "s", "no"),
    _kind("v1", "PersistentVolume", "persistentvolumes", "s", "pv"),
    _kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "ns", "pvc"),
    _kind("v1", "Pod", "pods", "nsg", "po", "all"),
    _kind("v1", "PodTemplate", "podtemplates", "ng"),
    _kind("v1", "ReplicationController", "replicationcontrollers", "nsgr", "rc", "all"),
    _kind("v1", "Secret", "secrets", "n"),
    _kind("v1", "Service", "services", "ns", "svc", "all"),
    _kind("v1", "ServiceAccount", "serviceaccounts", "n", "sa"),
    _kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", "sg", "crd crds",
          "api-extensions"),
    _kind("apps/v1", "DaemonSet", "daemonsets", "nsg", "ds", "all"),
    _kind("apps/v1", "Deployment", "deployments", "nsgr", "deploy", "all"),
    _kind("apps/v1", "ReplicaSet", "replicasets", "nsgr", "rs", "all"),
    _kind("apps/v1", "StatefulSet", "statefulsets", "nsgr", "sts", "all"),
    _kind("batch/v1", "CronJob", "cronjobs", "nsg", "cj", "all"),
    _kind("batch/v1", "Job", "jobs", "nsg", "", "all"),
    _kind("coordination.k8s.io/v1", "Lease", "leases", "n"),
    _kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses"),
    _kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "nsg", "pdb"),
    _kind(_RBAC, "ClusterRole", "clusterroles"),
    _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    _kind(_RBAC, "Role", "roles", "n"),
    _kind(_RBAC, "RoleBinding", "rolebindings", "n"),
    _kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", "g"),
    _kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", "ns"),
    _kind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", "n"),
    _kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", "g"),
    _kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "g", "pc"),
    _kind("storage.k8s.io/v1", "CSIDriver", "csidrivers", "g"),
    _kind("storage.k8s.io/v1", "CSINode", "csinodes", ""),
    _kind("storage.k8s.io/v1", "StorageClass", "storageclasses", "", "sc"),
    _kind("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", "s"),
)  # fmt: skip
