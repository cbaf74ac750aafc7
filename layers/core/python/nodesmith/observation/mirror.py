"""Mirrors: the reduced objects of one kind, updated from lists and watch events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodesmith.model.karpenter.ownership import KARPENTERS_LEASE
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.observed import UNREADABLE, Observed, reduce_attachment
from nodesmith.observation.podgroups import reduce_pod_group, reduce_workload
from nodesmith.observation.reduction.devices import (
    reduce_claim_template,
    reduce_device_claim,
    reduce_device_class,
    reduce_slice,
)
from nodesmith.observation.reduction.objects import (
    karpenter_wrote_at,
    reduce_budget,
    reduce_buffer,
    reduce_custom,
    reduce_lease,
    reduce_namespace,
    reduce_node,
    reduce_nodeclaim,
    reduce_request,
)
from nodesmith.observation.reduction.pods import (
    reduce_daemonset,
    reduce_growing,
    reduce_job,
    reduce_pod,
    reduce_pod_template,
    reduce_scalable,
)
from nodesmith.observation.reduction.podspecs import reduce_limit_range, reduce_runtime_class
from nodesmith.observation.reduction.volumes import reduce_claim, reduce_class, reduce_csi_node, reduce_volume


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind that decisions read. `name` is its field in `Observed`, and `path` is its list path in the API server.

    `reduce` returns None for an object that is not kept. A `custom` kind exists only once its CRD is installed; if its
    version is not served, those at the paths `older` and `oldest` are tried. A `referred` kind is read only while a
    CapacityBuffer refers to an object of it, or a Namespace asks for proactive scale-up, and a `claimed` kind only
    while a pod claims devices. The roles of an earlier release do not grant a `newer` kind: until those of this release
    are applied, it counts as one without objects. `selector` is the query that selects the objects to read; an empty
    one selects all. If `may_be_karpenters`, the mirror notes when Karpenter last wrote an object of the kind.
    """

    name: str
    kind: str
    path: str
    reduce: Callable[[Manifest], Any]
    custom: bool = False
    older: str = ""
    oldest: str = ""
    referred: bool = False
    claimed: bool = False
    newer: bool = False
    selector: str = ""
    may_be_karpenters: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The list paths to try, in order."""
        return (self.path, *filter(None, (self.older, self.oldest)))


PODS = WatchedKind("pods", "Pod", "/api/v1/pods", reduce_pod)
NODES = WatchedKind("nodes", "Node", "/api/v1/nodes", reduce_node)
DAEMONSETS = WatchedKind("daemonsets", "DaemonSet", "/apis/apps/v1/daemonsets", reduce_daemonset)
POD_TEMPLATES = WatchedKind(
    "podtemplates", "PodTemplate", "/api/v1/podtemplates", reduce_pod_template, newer=True
)
CAPACITY_BUFFERS = WatchedKind(
    "capacitybuffers",
    "CapacityBuffer",
    "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers",
    reduce_buffer,
    custom=True,
    older="/apis/autoscaling.x-k8s.io/v1alpha1/capacitybuffers",
    newer=True,
)
DEPLOYMENTS = WatchedKind(
    "deployments", "Deployment", "/apis/apps/v1/deployments", reduce_scalable, referred=True
)
REPLICA_SETS = WatchedKind(
    "replicasets", "ReplicaSet", "/apis/apps/v1/replicasets", reduce_growing, referred=True
)
STATEFUL_SETS = WatchedKind(
    "statefulsets", "StatefulSet", "/apis/apps/v1/statefulsets", reduce_growing, referred=True
)
JOBS = WatchedKind("jobs", "Job", "/apis/batch/v1/jobs", reduce_job, referred=True)
LIMIT_RANGES = WatchedKind("limitranges", "LimitRange", "/api/v1/limitranges", reduce_limit_range)
RUNTIME_CLASSES = WatchedKind(
    "runtimeclasses", "RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses", reduce_runtime_class
)
NODEPOOLS = WatchedKind(
    "nodepools",
    "NodePool",
    "/apis/karpenter.sh/v1/nodepools",
    reduce_custom,
    custom=True,
    may_be_karpenters=True,
)
NODECLASSES = WatchedKind(
    "nodeclasses",
    "EC2NodeClass",
    "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    reduce_custom,
    custom=True,
    may_be_karpenters=True,
)
NODECLAIMS = WatchedKind(
    "nodeclaims",
    "NodeClaim",
    "/apis/karpenter.sh/v1/nodeclaims",
    reduce_nodeclaim,
    custom=True,
    may_be_karpenters=True,
)
NODE_OVERLAYS = WatchedKind(
    "nodeoverlays", "NodeOverlay", "/apis/karpenter.sh/v1alpha1/nodeoverlays", reduce_custom, custom=True
)
PROVISIONERS = WatchedKind(
    "provisioners", "Provisioner", "/apis/karpenter.sh/v1alpha5/provisioners", reduce_custom, custom=True
)
NODE_TEMPLATES = WatchedKind(
    "awsnodetemplates",
    "AWSNodeTemplate",
    "/apis/karpenter.k8s.aws/v1alpha1/awsnodetemplates",
    reduce_custom,
    custom=True,
)
QUOTAS = WatchedKind(
    "capacityquotas",
    "CapacityQuota",
    "/apis/autoscaling.x-k8s.io/v1beta1/capacityquotas",
    reduce_custom,
    custom=True,
    older="/apis/autoscaling.x-k8s.io/v1alpha1/capacityquotas",
)
VOLUME_CLAIMS = WatchedKind(
    "persistentvolumeclaims", "PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", reduce_claim
)
VOLUMES = WatchedKind("persistentvolumes", "PersistentVolume", "/api/v1/persistentvolumes", reduce_volume)
STORAGE_CLASSES = WatchedKind(
    "storageclasses", "StorageClass", "/apis/storage.k8s.io/v1/storageclasses", reduce_class
)
CSI_NODES = WatchedKind("csinodes", "CSINode", "/apis/storage.k8s.io/v1/csinodes", reduce_csi_node)
NAMESPACES = WatchedKind("namespaces", "Namespace", "/api/v1/namespaces", reduce_namespace)
BUDGETS = WatchedKind(
    "poddisruptionbudgets", "PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets", reduce_budget
)
ATTACHMENTS = WatchedKind(
    "volumeattachments", "VolumeAttachment", "/apis/storage.k8s.io/v1/volumeattachments", reduce_attachment
)
REQUESTS = WatchedKind(
    "provisioningrequests",
    "ProvisioningRequest",
    "/apis/autoscaling.x-k8s.io/v1/provisioningrequests",
    reduce_request,
    custom=True,
    older="/apis/autoscaling.x-k8s.io/v1beta1/provisioningrequests",
    newer=True,
)


def _of_devices(name: str, kind: str, reduce: Callable[[Manifest], Any]) -> WatchedKind:
    """Return a kind of dynamic resource allocation. Kubernetes serves it from 1.34 on, or as a beta before."""
    path, older, oldest = (
        f"/apis/resource.k8s.io/{version}/{name}" for version in ("v1", "v1beta2", "v1beta1")
    )
    return WatchedKind(
        name, kind, path, reduce, custom=True, older=older, oldest=oldest, claimed=True, newer=True
    )


DEVICE_CLAIMS = _of_devices("resourceclaims", "ResourceClaim", reduce_device_claim)
CLAIM_TEMPLATES = _of_devices("resourceclaimtemplates", "ResourceClaimTemplate", reduce_claim_template)
DEVICE_CLASSES = _of_devices("deviceclasses", "DeviceClass", reduce_device_class)
SLICES = _of_devices("resourceslices", "ResourceSlice", reduce_slice)
# Alpha APIs: clusters that do not serve them, and EKS is among these, count as ones without objects.
POD_GROUPS = WatchedKind(
    "podgroups",
    "PodGroup",
    "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    reduce_pod_group,
    custom=True,
    newer=True,
)
WORKLOADS = WatchedKind(
    "workloads",
    "Workload",
    "/apis/scheduling.k8s.io/v1alpha1/workloads",
    reduce_workload,
    custom=True,
    newer=True,
)
SCHEDULER_POD_GROUPS = WatchedKind(
    "schedulerpodgroups",
    "PodGroup",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    reduce_pod_group,
    custom=True,
    newer=True,
)
LEASES = WatchedKind(
    "leases",
    "Lease",
    "/apis/coordination.k8s.io/v1/leases",
    reduce_lease,
    newer=True,
    selector=f"fieldSelector=metadata.name%3D{KARPENTERS_LEASE}",
)
"""Only the lease of Karpenter's leader election, in any namespace."""
ASKERS = (CAPACITY_BUFFERS, NAMESPACES)
"""The kinds whose objects decide which referred kinds are read."""
WATCHED = (
    PODS,
    NODES,
    DAEMONSETS,
    NODEPOOLS,
    NODECLASSES,
    NODECLAIMS,
    PROVISIONERS,
    NODE_TEMPLATES,
    QUOTAS,
    VOLUME_CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    NAMESPACES,
    BUDGETS,
    ATTACHMENTS,
    LIMIT_RANGES,
    RUNTIME_CLASSES,
    NODE_OVERLAYS,
    POD_TEMPLATES,
    CAPACITY_BUFFERS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    JOBS,
    REQUESTS,
    DEVICE_CLAIMS,
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    SLICES,
    POD_GROUPS,
    WORKLOADS,
    SCHEDULER_POD_GROUPS,
    LEASES,
)


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one reduced object. `before` or `after` is None if it did not exist or no longer exists."""

    kind: WatchedKind
    key: str
    before: Any
    after: Any


@dataclass(slots=True)
class Mirror:
    """The objects of one kind by `namespace/name`. An object that cannot be reduced is only in `problems`.

    `karpenter_wrote` is when Karpenter last wrote one of them, as far as their managedFields show, and their kind.
    """

    kind: WatchedKind
    objects: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    karpenter_wrote: tuple[str, str] = ("", "")

    def put(self, manifest: Manifest) -> Change | None:
        """Store the newest state of an object. Return None if that changes nothing."""
        key = key_of(manifest)
        if self.kind.may_be_karpenters and (at := karpenter_wrote_at(manifest)):
            self.karpenter_wrote = max(self.karpenter_wrote, (at, self.kind.kind))
        try:
            after = self.kind.reduce(manifest)
        except UNREADABLE as error:
            after = None
            self.problems[key] = f"{self.kind.kind}/{key}: cannot be read and is left out: {error!r}"
        else:
            self.problems.pop(key, None)
        return self._settle(key, after)

    def drop(self, manifest: Manifest) -> Change | None:
        """Remove an object that is gone. Return None if that changes nothing."""
        return self._forget(key_of(manifest))

    def keep_only(self, keys: Collection[str]) -> list[Change]:
        """Remove all objects except those with these keys, which are those of a complete list."""
        removed = sorted((self.objects.keys() | self.problems.keys()) - set(keys))
        return [change for change in map(self._forget, removed) if change]

    def _forget(self, key: str) -> Change | None:
        self.problems.pop(key, None)
        return self._settle(key, None)

    def _settle(self, key: str, after: Any) -> Change | None:
        before = self.objects.get(key)
        if after is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = after
        return Change(self.kind, key, before, after) if before != after else None


def key_of(manifest: Manifest) -> str:
    """Return `namespace/name`, or the name alone for an object without a namespace."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def observed(
    mirrors: Iterable[Mirror],
    departures: Mapping[str, int] | None = None,
    growths: Mapping[str, int] | None = None,
) -> Observed:
    """Return the objects of mirrors for encoding, with `departures` and `growths` as in `Observed`."""
    all_mirrors = list(mirrors)
    problems = [text for mirror in all_mirrors for text in mirror.problems.values()]
    objects = {mirror.kind.name: list(mirror.objects.values()) for mirror in all_mirrors}
    wrote = max((mirror.karpenter_wrote for mirror in all_mirrors), default=("", ""))
    return Observed(
        **objects,
        problems=problems,
        departures=dict(departures or {}),
        karpenter_wrote=wrote,
        growths=dict(growths or {}),
    )
