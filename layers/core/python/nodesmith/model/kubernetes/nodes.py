"""Nodes as the API server shows them, and the volumes that are attached to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from nodesmith.model.apimachinery.labels import REGISTERED, Taint
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, parse_resources
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.pods import Manifest

REGISTERED_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")

DELETION_DELAY = "delay-deletion.cluster-autoscaler.kubernetes.io"
"""The domain of annotations on a Node with which other controllers delay its end. Their values have no meaning."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a node. `status` is True, False or Unknown."""

    status: str
    reason: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `provider_id` is `aws:///<zone>/<instance id>`, empty until the cloud controller has set it.

    `owners` are the uids of the NodeClaims that own it, by name. `last_pod_event_at` is when a pod last came to it,
    began to end on it or left it, except for DaemonSet pods; None if that was not observed.
    """

    name: str
    created_at: datetime
    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Resources = NOTHING
    allocatable: Resources = NOTHING
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)
    last_pod_event_at: datetime | None = None

    @property
    def is_restored(self) -> bool:
        """True if it has registered but has no provider id: it was recreated from a backup."""
        return not self.provider_id and self.labels.get(REGISTERED) == "true"

    @property
    def deletion_delays(self) -> list[str]:
        """The keys of the annotations that delay its end, in order."""
        return sorted(key for key in self.annotations if key.startswith(f"{DELETION_DELAY}/"))

    @property
    def is_ready(self) -> bool:
        ready = self.conditions.get("Ready")
        return ready is not None and ready.status == "True"


@dataclass(frozen=True, slots=True)
class NodePatch:
    """Changes to a Node. Labels and annotations are merged. Taints are added once, and removed, by identity.

    A Node that is being deleted gets no new finalizers. The NodeClaim named `owner` becomes an owner if it exists;
    other owners stay. The patch applies only to a Node with this `provider_id`, empty for any. A restored Node without
    a provider id gets it back.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[Taint, ...] = ()
    provider_id: str = ""
    add_finalizers: tuple[str, ...] = ()
    owner: str = ""
    remove_labels: tuple[str, ...] = ()
    unschedulable: bool | None = None
    """Whether to cordon or uncordon the Node; None leaves it unchanged."""


def parse_node(manifest: Manifest, last_pod_event_at: datetime | None = None) -> Node:
    """Read a reduced Node manifest.

    Raises QuantityError, ValueError or KeyError for content that no API server accepts.
    """
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    taints = tuple(
        Taint(str(t["key"]), str(t["effect"]), str(t.get("value") or "")) for t in spec.get("taints") or ()
    )
    if spec.get("unschedulable") and REGISTERED_UNSCHEDULABLE not in taints:
        taints = (*taints, REGISTERED_UNSCHEDULABLE)
    return Node(
        name=str(metadata["name"]),
        created_at=parse_time(metadata["creationTimestamp"]),
        provider_id=str(spec.get("providerID") or ""),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        taints=taints,
        capacity=_amounts(tuple((status.get("capacity") or {}).items())),
        allocatable=_amounts(tuple((status.get("allocatable") or {}).items())),
        conditions={str(c["type"]): _condition(c) for c in status.get("conditions") or ()},
        deleting=bool(metadata.get("deletionTimestamp")),
        finalizers=tuple(map(str, metadata.get("finalizers") or ())),
        owners={
            str(owner["name"]): str(owner["uid"])
            for owner in metadata.get("ownerReferences") or ()
            if owner.get("kind") == "NodeClaim"
        },
        last_pod_event_at=last_pod_event_at,
    )


@lru_cache(maxsize=1024)
def _amounts(quantities: tuple[tuple[str, object], ...]) -> Resources:
    """Return a resource list. Cached: nodes of one type have the same, and parsing it is half the cost of a Node."""
    return parse_resources(dict(quantities))


def _condition(raw: Manifest) -> Condition:
    since = raw.get("lastTransitionTime")
    return Condition(
        str(raw.get("status")), str(raw.get("reason") or ""), parse_time(since) if since else None
    )


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume that is attached to a node, or not yet detached from it.

    `volume` is the name of the PersistentVolume. `pods` (namespace/name) are the pods on that node that use it through
    a PersistentVolumeClaim, empty once they have left.
    """

    node: str
    volume: str
    pods: tuple[str, ...] = ()
