"""The columns that `kubectl get` shows for each kind."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import dig, name_of
from nodesmith_local.apiserver.tables.ages import UNKNOWN
from nodesmith_local.apiserver.tables.cells import (
    AGE,
    NAME,
    NONE,
    SELECTOR,
    TEMPLATE,
    WIDE,
    Column,
    at,
    containers,
    number,
    printer_cell,
    ratio,
)
from nodesmith_local.apiserver.tables.kindcells import (
    address,
    allowed,
    claim,
    count,
    event_object,
    event_seen,
    event_source,
    gates,
    job_completions,
    job_duration,
    job_status,
    map_text,
    modes,
    node_status,
    pod_ready,
    pod_status,
    ports,
    restarts,
    roles,
    since,
)


def columns_of(resource: Resource, version: str) -> tuple[Column, ...]:
    """Return the columns of a kind.

    A built-in kind has its own columns; a custom one has the CRD's printer columns after the name. The fallback is name
    and age.
    """
    if resource.name == "events":
        return _BUILTIN["events"]  # the only kind whose name is not the first column
    if not resource.custom:
        return (NAME, *_BUILTIN.get(resource.name, (AGE,)))
    custom = tuple(
        Column(
            column["name"],
            printer_cell(column["jsonPath"], column.get("type", "string")),
            column.get("type", "string"),
            int(column.get("priority", 0)),
            column.get("format", ""),
        )
        for column in resource.columns.get(version) or ()
    )
    return (NAME, *(custom or (AGE,)))


_REPLICAS = (
    number("Desired", "spec", "replicas"),
    number("Current", "status", "replicas"),
    number("Ready", "status", "readyReplicas"),
    AGE,
    *WIDE,
    SELECTOR,
)

_BUILTIN: Mapping[str, tuple[Column, ...]] = {
    "configmaps": (Column("Data", count("data"), "integer"), AGE),
    "csidrivers.storage.k8s.io": (at("AttachRequired", "spec", "attachRequired", empty="true"), AGE),
    "csinodes.storage.k8s.io": (
        Column("Drivers", lambda obj, _: len(dig(obj, "spec", "drivers") or ()), "integer"),
        AGE,
    ),
    "cronjobs.batch": (
        at("Schedule", "spec", "schedule"),
        at("Timezone", "spec", "timeZone"),
        at("Suspend", "spec", "suspend", empty="False"),
        Column("Active", lambda obj, _: len(dig(obj, "status", "active") or ()), "integer"),
        Column("Last Schedule", since("status", "lastScheduleTime")),
        AGE,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (at("Created At", "metadata", "creationTimestamp"),),
    "daemonsets.apps": (
        number("Desired", "status", "desiredNumberScheduled"),
        number("Current", "status", "currentNumberScheduled"),
        number("Ready", "status", "numberReady"),
        number("Up-to-date", "status", "updatedNumberScheduled"),
        number("Available", "status", "numberAvailable"),
        Column("Node Selector", map_text(*TEMPLATE, "nodeSelector")),
        AGE,
        *WIDE,
        SELECTOR,
    ),
    "deployments.apps": (
        Column("Ready", ratio(("status", "readyReplicas"), ("spec", "replicas"))),
        number("Up-to-date", "status", "updatedReplicas"),
        number("Available", "status", "availableReplicas"),
        AGE,
        *WIDE,
        SELECTOR,
    ),
    "events": (
        Column("Last Seen", event_seen("lastTimestamp")),
        at("Type", "type", empty=""),
        at("Reason", "reason", empty=""),
        Column("Object", event_object),
        at("Subobject", "involvedObject", "fieldPath", empty="", priority=1),
        Column("Source", event_source, priority=1),
        Column("Message", lambda obj, _: str(obj.get("message", "")).strip()),
        Column("First Seen", event_seen("firstTimestamp"), priority=1),
        at("Count", "count", kind="string", empty="1", priority=1),
        Column("Name", lambda obj, _: name_of(obj), priority=1, format="name"),
    ),
    "jobs.batch": (
        Column("Status", job_status),
        Column("Completions", job_completions),
        Column("Duration", job_duration),
        AGE,
        *WIDE,
        SELECTOR,
    ),
    "leases.coordination.k8s.io": (at("Holder", "spec", "holderIdentity", empty=""), AGE),
    "namespaces": (at("Status", "status", "phase"), AGE),
    "nodes": (
        Column("Status", node_status),
        Column("Roles", roles),
        AGE,
        at("Version", "status", "nodeInfo", "kubeletVersion", empty=""),
        Column("Internal-IP", address("InternalIP"), priority=1),
        Column("External-IP", address("ExternalIP"), priority=1),
        at("OS-Image", "status", "nodeInfo", "osImage", empty=UNKNOWN, priority=1),
        at("Kernel-Version", "status", "nodeInfo", "kernelVersion", empty=UNKNOWN, priority=1),
        at("Container-Runtime", "status", "nodeInfo", "containerRuntimeVersion", empty=UNKNOWN, priority=1),
    ),
    "persistentvolumeclaims": (
        at("Status", "status", "phase", empty=""),
        at("Volume", "spec", "volumeName", empty=""),
        at("Capacity", "status", "capacity", "storage", empty=""),
        Column("Access Modes", modes("status")),
        at("StorageClass", "spec", "storageClassName", empty=""),
        at("VolumeAttributesClass", "spec", "volumeAttributesClassName", empty="<unset>"),
        AGE,
        at("VolumeMode", "spec", "volumeMode", empty="<unset>", priority=1),
    ),
    "persistentvolumes": (
        at("Capacity", "spec", "capacity", "storage", empty=""),
        Column("Access Modes", modes("spec")),
        at("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy", empty=""),
        at("Status", "status", "phase", empty=""),
        Column("Claim", claim),
        at("StorageClass", "spec", "storageClassName", empty=""),
        at("VolumeAttributesClass", "spec", "volumeAttributesClassName", empty="<unset>"),
        at("Reason", "status", "reason", empty=""),
        AGE,
        at("VolumeMode", "spec", "volumeMode", empty="<unset>", priority=1),
    ),
    "poddisruptionbudgets.policy": (
        Column("Min Available", allowed("minAvailable")),
        Column("Max Unavailable", allowed("maxUnavailable")),
        number("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE,
    ),
    "pods": (
        Column("Ready", pod_ready),
        Column("Status", lambda pod, _: pod_status(pod)),
        Column("Restarts", restarts),
        AGE,
        at("IP", "status", "podIP", priority=1),
        at("Node", "spec", "nodeName", priority=1),
        at("Nominated Node", "status", "nominatedNodeName", priority=1),
        Column("Readiness Gates", gates, priority=1),
    ),
    "podtemplates": (
        Column("Containers", containers("name", "template", "spec")),
        Column("Images", containers("image", "template", "spec")),
        Column("Pod Labels", map_text("template", "metadata", "labels")),
    ),
    "priorityclasses.scheduling.k8s.io": (
        number("Value", "value"),
        at("Global-Default", "globalDefault", empty="false"),
        AGE,
        at("PreemptionPolicy", "preemptionPolicy", empty=""),
    ),
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": (
        *_REPLICAS[:-1],
        Column("Selector", map_text("spec", "selector"), priority=1),
    ),
    "secrets": (at("Type", "type", empty=""), Column("Data", count("data"), "integer"), AGE),
    "serviceaccounts": (Column("Secrets", count("secrets"), "integer"), AGE),
    "services": (
        at("Type", "spec", "type"),
        at("Cluster-IP", "spec", "clusterIP"),
        Column("External-IP", lambda _obj, _now: NONE),
        Column("Port(s)", ports),
        AGE,
        Column("Selector", map_text("spec", "selector"), priority=1),
    ),
    "statefulsets.apps": (
        Column("Ready", ratio(("status", "readyReplicas"), ("spec", "replicas"))),
        AGE,
        *WIDE,
    ),
    "storageclasses.storage.k8s.io": (
        at("Provisioner", "provisioner"),
        at("ReclaimPolicy", "reclaimPolicy"),
        at("VolumeBindingMode", "volumeBindingMode"),
        at("AllowVolumeExpansion", "allowVolumeExpansion", empty="false"),
        AGE,
    ),
    "volumeattachments.storage.k8s.io": (
        at("Attacher", "spec", "attacher"),
        at("PV", "spec", "source", "persistentVolumeName"),
        at("Node", "spec", "nodeName"),
        at("Attached", "status", "attached", empty="false"),
        AGE,
    ),
}
