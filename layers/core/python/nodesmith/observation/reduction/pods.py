"""Reduce pods to what decisions read. Environment, command, image and volume content are never kept.

A reduced pod has the few properties of its own, plus the text of its shape's manifest. Pods with equal texts are
identical to the scheduler, apart from labels, which `encoding` selects once all pods are known.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.capacitybuffers import SCALABLE_KINDS, kind_key
from nodesmith.model.kubernetes.podannotations import (
    DAEMON_EVICTION,
    ON_DEMAND_BASE,
    ON_DEMAND_PERCENT,
    POD_PROTECTIONS,
    PROACTIVE,
    SCALE_UP_DELAY,
    with_do_not_disrupt,
)
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.kubernetes.provisioningrequests import CONSUMES, with_consumption
from nodesmith.model.policies import NODE_SURCHARGE
from nodesmith.observation.podgroups import POD_GROUP, group_of
from nodesmith.observation.reduction.devices import DeviceRef, device_refs
from nodesmith.observation.reduction.podspecs import (
    container_statuses,
    images_of,
    limits_text,
    reduce_spec,
    resized,
    shared_labels,
    with_infeasible,
    without_empty,
)
from nodesmith.observation.reduction.volumes import Mount, mounts

ANNOTATIONS = (
    DO_NOT_DISRUPT,
    "controller.kubernetes.io/pod-deletion-cost",
    SCALE_UP_DELAY,
    DAEMON_EVICTION,
    CONSUMES,
    ON_DEMAND_BASE,
    ON_DEMAND_PERCENT,
)
_NAMED_OWNERS = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})
_TERMINAL = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True)
class ReducedPod:
    """One pod. `shape` is the canonical JSON of its manifest without labels. Times are in seconds since 1970.

    `starting` is True while it is on a node and its phase is Pending. `deletion` is when its grace period ends.
    `started` is kept for pods that are protected from disruption for a duration, which counts from there. `moved` is
    when it came to its node or began to leave it, 0 for DaemonSet pods. `claims` are PersistentVolumeClaims. `phase`
    and `limits` (the spec with only limits, or empty) are for metrics: their change is no change of the pod.
    """

    name: str
    namespace: str
    uid: str
    shape: str
    labels: Mapping[str, str]
    created: int
    owner_kind: str = ""
    owner_group: str = ""
    owner_name: str = ""
    node: str = ""
    unschedulable: bool = False
    nominated_node: str = ""
    claims: tuple[Mount, ...] = ()
    ready: bool = True
    starting: bool = False
    deletion: int | None = None
    started: int | None = None
    moved: int = 0
    startup_minutes: int = 0
    devices: tuple[DeviceRef, ...] = ()
    phase: str = field(default="", compare=False)
    limits: str = field(default="", compare=False)

    @property
    def deleting(self) -> bool:
        return self.deletion is not None

    @property
    def bound_or_nominated_node(self) -> str:
        """The node that the pod is on or nominated for, empty if there is none."""
        return self.node or self.nominated_node

    @property
    def is_provisionable(self) -> bool:
        """True if a new node could help, judged by the pod alone (karpenter: IsProvisionable)."""
        return (
            self.unschedulable
            and not (self.node or self.nominated_node or self.deleting)
            and self.owner_kind not in {"DaemonSet", "Node"}
        )


def reduce_pod(manifest: Manifest) -> ReducedPod | None:
    """Reduce a pod from the API. Return None for a terminal pod, because it uses no resources.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    if status.get("phase") in _TERMINAL:
        return None
    controller = _controller(metadata)
    owner = _owner_reference(controller)
    node = sys.intern(str(spec.get("nodeName") or ""))
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    return ReducedPod(
        name=str(metadata["name"]),
        namespace=sys.intern(str(metadata["namespace"])),
        uid=str(metadata["uid"]),
        shape=_shape_text(metadata, with_infeasible(spec, status), container_statuses(status), owner),
        labels=shared_labels(metadata.get("labels") or {}),
        created=_seconds(metadata["creationTimestamp"]),
        owner_kind=owner.get("kind", ""),
        owner_group=sys.intern(_group(controller)),
        owner_name=sys.intern(str(controller.get("name", ""))),
        node=node,
        unschedulable=conditions.get("PodScheduled", {}).get("reason") == "Unschedulable",
        nominated_node="" if node else str(status.get("nominatedNodeName") or ""),
        claims=mounts(metadata, spec.get("volumes") or ()),
        ready=conditions.get("Ready", {}).get("status") == "True",
        starting=bool(node) and status.get("phase") == "Pending",
        deletion=_seconds(ends) if (ends := metadata.get("deletionTimestamp")) else None,
        started=_started(metadata, status),
        moved=_moved(metadata, conditions.get("PodScheduled", {})) if _counts(owner, node) else 0,
        startup_minutes=startup_minutes(metadata, status) if _counts(owner, node) else 0,
        devices=device_refs(spec, status),
        phase=sys.intern(str(status.get("phase") or "")),
        limits=sys.intern(limits_text(spec)),
    )


def reduce_daemonset(manifest: Manifest) -> dict[str, Any]:
    """Return the pod that a DaemonSet would create, as a reduced manifest with its labels.

    Raises KeyError, TypeError or AttributeError for content that no API server accepts.
    """
    metadata = manifest["metadata"]
    owner = {"kind": "DaemonSet", "name": str(metadata["name"]), "controller": True}
    pod = _templated(manifest["spec"]["template"], str(metadata["namespace"]))
    about = {**pod["metadata"], "ownerReferences": [owner]}
    surcharge = (metadata.get("annotations") or {}).get(NODE_SURCHARGE)
    if surcharge is not None:
        about["annotations"] = {**about.get("annotations", {}), NODE_SURCHARGE: str(surcharge)}
    return {**pod, "metadata": about}


def reduce_pod_template(manifest: Manifest) -> dict[str, Any]:
    """Keep a PodTemplate's name, generation and images, and as `pod` the pod that would be created from it.

    `encoding` keeps the images only of templates whose CapacityBuffer wants them pulled. Raises KeyError, TypeError or
    AttributeError for content that no API server accepts.
    """
    template = manifest["template"]
    pod = _templated(template, manifest["metadata"]["namespace"])
    return {**_about(manifest), "pod": pod, "images": images_of(template.get("spec") or {})}


def reduce_scalable(manifest: Manifest) -> dict[str, Any]:
    """Keep of a workload what `reduce_pod_template` keeps, and how many pods it wants: for a Job, how many at once.

    If a custom resource controls it, `owner` is that one's `kind_key/name`, and `created` when the workload was
    created, in seconds since 1970.

    Raises KeyError, TypeError or AttributeError for content that no API server accepts.
    """
    spec = manifest["spec"]
    replicas = spec.get("replicas", spec.get("parallelism"))
    pod = _templated(spec["template"], str(manifest["metadata"]["namespace"]))
    images = images_of(spec["template"].get("spec") or {})
    return {
        **_about(manifest),
        "replicas": 1 if replicas is None else int(replicas),
        "pod": pod,
        "images": images,
        **_owned(manifest["metadata"]),
    }


def _owned(metadata: Manifest) -> dict[str, Any]:
    controller = _controller(metadata)
    group = _group(controller)
    if group in {"", *SCALABLE_KINDS.values()}:
        return {}
    owner = f"{kind_key(str(controller['kind']), group)}/{controller['name']}"
    return {"owner": owner, "created": _seconds(metadata["creationTimestamp"])}


def _group(reference: Manifest) -> str:
    """Return the API group of an owner, empty for the core group and without an owner."""
    return str(reference.get("apiVersion") or "").rpartition("/")[0]


def reduce_growing(manifest: Manifest) -> dict[str, Any]:
    """Keep what `reduce_scalable` keeps of a ReplicaSet or StatefulSet, and its `size`: see `reduce_size`.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    return {**reduce_scalable(manifest), **without_empty({"size": reduce_size(manifest)})}


def reduce_job(manifest: Manifest) -> dict[str, Any]:
    """Keep of a Job what `reduce_growing` keeps of others. Raises like it."""
    return {**reduce_scalable(manifest), **without_empty({"size": reduce_size(manifest, is_job=True)})}


def _about(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest["metadata"]
    about = {"namespace": str(metadata["namespace"]), "name": str(metadata["name"])}
    return {"metadata": {**about, "generation": int(metadata.get("generation") or 0)}}


def _templated(template: Manifest, namespace: str) -> dict[str, Any]:
    """Return the reduced pod of a pod template, with its labels and without its volumes."""
    inner, spec = template.get("metadata") or {}, template.get("spec") or {}
    about = {
        "namespace": namespace,
        "labels": dict(inner.get("labels") or {}),
        "annotations": _annotations(inner),
    }
    extra = without_empty({"runtimeClassName": spec.get("runtimeClassName")})
    return {"metadata": without_empty(about), "spec": {**reduce_spec(spec), **extra}}


def _shape_text(metadata: Manifest, spec: Manifest, statuses: Sequence[Manifest], owner: Manifest) -> str:
    """Return the text of the shape, without a DaemonSet pod's affinity, since that pins each pod to its node."""
    about = {
        "namespace": metadata["namespace"],
        "annotations": _annotations(metadata),
        "ownerReferences": [owner] if owner else [],
    }
    if group := group_of(metadata, spec):
        about["annotations"] = {**about["annotations"], POD_GROUP: group}
    shape = {
        "metadata": without_empty(about),
        "spec": reduce_spec(spec if owner.get("kind") != "DaemonSet" else {**spec, "affinity": None}),
        "status": without_empty({"containerStatuses": resized(spec, statuses)}),
    }
    return sys.intern(json.dumps(without_empty(shape), sort_keys=True, separators=(",", ":")))


def _controller(metadata: Manifest) -> Manifest:
    """Return the owner reference of an object's controller, empty without one."""
    return next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), {})


def _owner_reference(controller: Manifest) -> dict[str, Any]:
    """Return a controller, with its name only for kinds with many identical pods; a Job's pod may be its only one."""
    if not controller:
        return {}
    kind = str(controller["kind"])
    name = {"name": str(controller["name"])} if kind in _NAMED_OWNERS else {}
    return {"kind": kind, "controller": True, **name}


def _started(metadata: Manifest, status: Manifest) -> int | None:
    """Return when a pod started if its do-not-disrupt is a duration, which counts from there; else None."""
    if _annotations(metadata).get(DO_NOT_DISRUPT, "true") == "true" or not status.get("startTime"):
        return None
    return _seconds(status["startTime"])


def _counts(owner: Manifest, node: str) -> bool:
    return bool(node) and owner.get("kind") != "DaemonSet"


def _moved(metadata: Manifest, scheduled: Manifest) -> int:
    """Return when a pod began to end or was bound.

    If neither is known, return when it was created, because its node was set then.
    """
    if metadata.get("deletionTimestamp"):
        return _seconds(metadata["deletionTimestamp"]) - int(metadata.get("deletionGracePeriodSeconds") or 0)
    return _seconds(scheduled.get("lastTransitionTime") or metadata["creationTimestamp"])


def _seconds(text: str) -> int:
    return int(parse_time(text).timestamp())


def _annotations(metadata: Manifest) -> dict[str, str]:
    converted = with_consumption(with_do_not_disrupt(metadata.get("annotations") or {}, POD_PROTECTIONS))
    return {name: str(converted[name]) for name in ANNOTATIONS if name in converted}


NOTEWORTHY_MINUTES = 10
"""A shorter startup is not kept: nearly all pods take less, and the eviction cost already covers that."""
_MOST_MINUTES = 360


# The startup time of a pod, from which the cost of moving it is calculated.
#
#      minutes = from a start to Ready × starts,    starts = 1 + restarts / days until it was Ready, at least one day
#
# A pod that has restarted failed during its start or does not stay up, and its successor is expected to restart as
# often. Restarts long ago, or rare ones in a long life, hardly count. For a pod that has restarted, the last start
# is timed.
def startup_minutes(metadata: Manifest, status: Manifest) -> int:
    """Return the startup time, at most six hours; 0 if it is short, or not known yet because the pod is not Ready."""
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    if ready.get("status") != "True" or not ready.get("lastTransitionTime") or not status.get("startTime"):
        return 0
    at, created = parse_time(ready["lastTransitionTime"]), parse_time(metadata["creationTimestamp"])
    containers = status.get("containerStatuses") or ()
    restarts = sum(int(container.get("restartCount") or 0) for container in containers)
    starts = [parse_time(status["startTime"]), *(_began(c) for c in containers if c.get("restartCount"))]
    latest_start = max((start for start in starts if start is not None and start <= at), default=at)
    times = 1 + restarts / max(1.0, (at - created).total_seconds() / 86_400)
    minutes = int((at - latest_start).total_seconds() * times / 60)
    return min(minutes, _MOST_MINUTES) if minutes > NOTEWORTHY_MINUTES else 0


def _began(container: Manifest) -> datetime | None:
    began = ((container.get("state") or {}).get("running") or {}).get("startedAt")
    return parse_time(began) if began else None


# Proactive scale-up reads sizes. Deployments have none: their controller sets those of their ReplicaSets, within
# maxSurge, within milliseconds.
_JOB_CONTROLLER = "kubernetes.io/job-controller"
_MAKE_CLAIMS = ("persistentVolumeClaim", "ephemeral")


def reduce_size(manifest: Manifest, *, is_job: bool = False) -> dict[str, Any] | None:
    """Return how many pods a ReplicaSet, StatefulSet or Job wants now, and when it was created, in seconds since 1970.

    `serial` is True if each pod is only created once the one before it is ready. Return None for workloads whose pods
    nobody can plan before they exist, or whose controller cannot create them.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    metadata, spec = manifest["metadata"], manifest["spec"]
    if _is_left_out(metadata, manifest) or not metadata.get("creationTimestamp"):
        return None
    replicas = _wanted_by_job(manifest) if is_job else spec.get("replicas", 1)
    size = {"wanted": int(replicas), "created": int(parse_time(metadata["creationTimestamp"]).timestamp())}
    is_serial = "serviceName" in spec and spec.get("podManagementPolicy") != "Parallel"
    return {**size, "serial": True} if is_serial else size


def _is_left_out(metadata: Manifest, manifest: Manifest) -> bool:
    """Return whether a workload's pods cannot be planned.

    That is so if it opts out or is being deleted, if its pods are already refused (by a quota or a webhook), if their
    place depends on volumes or on something else that does not exist yet, or if a delay or a gate holds them.
    """
    spec, template = manifest["spec"], manifest["spec"]["template"]
    pod, about = template.get("spec") or {}, template.get("metadata") or {}
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return bool(
        (metadata.get("annotations") or {}).get(PROACTIVE) == "false"
        or metadata.get("deletionTimestamp")
        or _holds("ReplicaFailure", conditions)
        or spec.get("volumeClaimTemplates")
        or any(volume.get(kind) for volume in pod.get("volumes") or () for kind in _MAKE_CLAIMS)
        or pod.get("nodeName")
        or pod.get("schedulingGates")
        or pod.get("resourceClaims")
        or SCALE_UP_DELAY in (about.get("annotations") or {})
    )


def _wanted_by_job(manifest: Manifest) -> int:
    """Return how many pods of a Job may run at once of those that have not succeeded; none once it is over.

    Without `completions`, the first success means that no further pods are created.
    """
    spec, status = manifest["spec"], manifest.get("status") or {}
    conditions = status.get("conditions") or ()
    if spec.get("suspend") or spec.get("managedBy", _JOB_CONTROLLER) != _JOB_CONTROLLER:
        return 0
    if any(
        _holds(kind, conditions) for kind in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
    ):
        return 0
    parallelism, succeeded = int(spec.get("parallelism", 1)), int(status.get("succeeded") or 0)
    completions = spec.get("completions")
    if completions is None:
        return 0 if succeeded else parallelism
    return max(0, min(parallelism, int(completions) - succeeded))


def _holds(kind: str, conditions: Iterable[Manifest]) -> bool:
    return any(item.get("type") == kind and item.get("status") == "True" for item in conditions)
