"""Defaults of the built-in kinds, and the status of newly created objects."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from nodesmith_formats.kubernetes.objects import Object, dig, name_of
from nodesmith_formats.kubernetes.pods import with_pod_defaults, with_template_defaults

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def with_defaults(kind: str, obj: Object) -> Object:
    """Fill in the defaults that a real server sets for this kind on create and on every update."""
    spec = obj.get("spec")
    if isinstance(spec, Mapping) and kind in _SPEC:
        obj = {**obj, "spec": {**_SPEC[kind], **spec}}
    match kind:
        case "Pod":
            return with_pod_defaults(obj)
        case "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "ReplicationController" | "Job":
            obj = _with_strategy(kind, obj)
            return with_template_defaults(obj, "spec", "template")
        case "CronJob":
            return with_template_defaults(obj, "spec", "jobTemplate", "spec", "template")
        case "PodTemplate":
            return with_template_defaults(obj, "template")
        case "Secret":
            return _secret(obj)
        case "StorageClass":
            return {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **obj}
        case "PriorityClass":
            return {"preemptionPolicy": "PreemptLowerPriority", **obj}
        case _:
            return obj


def at_birth(kind: str, obj: Object) -> Object:
    """Apply the changes that a real server makes to an object of this kind only on creation."""
    match kind:
        case "Namespace":
            labels = {**(dig(obj, "metadata", "labels") or {}), "kubernetes.io/metadata.name": name_of(obj)}
            metadata = {**obj["metadata"], "labels": labels}
            return {
                **obj,
                "metadata": metadata,
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }
        case "Node":
            return _tainted(obj)
        case "PersistentVolume" | "PersistentVolumeClaim":
            return {**obj, "status": {"phase": "Pending"}}
        case "Job":
            return _owned_selector(obj)
        case _:
            return obj


_UPDATES = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"}

_SPEC: Mapping[str, Object] = {
    "Deployment": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": _UPDATES,
    },
    "ReplicaSet": {"replicas": 1},
    "ReplicationController": {"replicas": 1},
    "StatefulSet": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "updateStrategy": {"rollingUpdate": {"partition": 0}, "type": "RollingUpdate"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "DaemonSet": {
        "revisionHistoryLimit": 10,
        "updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"},
    },
    "Job": {"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False, "manualSelector": False},
    "CronJob": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "Service": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"},
    "PersistentVolume": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    "PersistentVolumeClaim": {"volumeMode": "Filesystem"},
}


def _with_strategy(kind: str, obj: Object) -> Object:
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        return obj
    if kind == "Job" and "completions" not in spec and "parallelism" not in spec:
        spec = {"completions": 1, "parallelism": 1, **spec}
    elif kind == "Job":
        spec = {"parallelism": 1, **spec}
    if kind == "Deployment" and dig(spec, "strategy", "type") in (None, "RollingUpdate"):
        rolling = {**_UPDATES["rollingUpdate"], **(dig(spec, "strategy", "rollingUpdate") or {})}  # type: ignore[dict-item]
        spec = {**spec, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    return {**obj, "spec": spec}


def _owned_selector(job: Object) -> Object:
    """Return a Job with a selector for its own uid, so that two Jobs never share pods."""
    if dig(job, "spec", "manualSelector") or not isinstance(dig(job, "spec", "template"), Mapping):
        return job
    spec, template = job["spec"], job["spec"]["template"]
    uid_label = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
    name_labels = {"batch.kubernetes.io/job-name": name_of(job), "job-name": name_of(job)}
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **uid_label, **name_labels}
    template = {**template, "metadata": {**metadata, "labels": labels}}
    return {**job, "spec": {**spec, "selector": {"matchLabels": uid_label}, "template": template}}


def _secret(obj: Object) -> Object:
    encoded = {
        key: b64encode(str(text).encode()).decode() for key, text in (obj.get("stringData") or {}).items()
    }
    secret = {key: value for key, value in obj.items() if key != "stringData"}
    if encoded:
        secret["data"] = {**(obj.get("data") or {}), **encoded}
    return {"type": "Opaque", **secret}


def _tainted(node: Object) -> Object:
    """Return the node with the not-ready taint.

    The taint keeps pods off a node until the node lifecycle controller has seen the node Ready.
    """
    spec = dict(node.get("spec") or {})
    taints = list(spec.get("taints") or ())
    if not any(
        taint.get("key") == _NOT_READY["key"] and taint.get("effect") == "NoSchedule" for taint in taints
    ):
        spec["taints"] = [*taints, dict(_NOT_READY)]
    return {**node, "spec": spec}
