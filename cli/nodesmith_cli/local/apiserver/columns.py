"""The columns in which `kubectl get` shows each kind, and how their cells are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from nodesmith_cli.local.apiserver.ages import UNKNOWN, age, span
from nodesmith_cli.local.apiserver.jsonpaths import values_at
from nodesmith_cli.local.apiserver.kinds import Resource
from nodesmith_cli.local.apiserver.objects import View, condition_of, dig, name_of, parse_timestamp
from nodesmith_cli.local.apiserver.selectors import selector_text

Cell: TypeAlias = Callable[[View, datetime], Any]
NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Priority 1 is shown by `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""


def columns_of(resource: Resource, version: str) -> tuple[Column, ...]:
    """Give the columns of a kind: its own, a CRD's printer columns after the name, or name and age."""
    name = Column("Name", lambda obj, _: name_of(obj), format="name")
    if not resource.custom:
        return (
            (name, *_BUILTIN.get(resource.name, (_AGE,))) if resource.name != "events" else _BUILTIN["events"]
        )
    printed = resource.columns.get(version) or ()
    custom = tuple(
        Column(
            each["name"],
            _printer_cell(each["jsonPath"], each.get("type", "string")),
            each.get("type", "string"),
            int(each.get("priority", 0)),
            each.get("format", ""),
        )
        for each in printed
    )
    return (name, *(custom or (_AGE,)))


def _printer_cell(path: str, kind: str) -> Cell:
    def cell(obj: View, now: datetime) -> Any:
        found = values_at(obj, path)
        if not found or found[0] is None:
            return None if kind != "date" else UNKNOWN
        if kind == "date":
            return age(found[0], now)
        if kind == "string":
            return ",".join(_text(value) for value in found)
        return found[0]

    return cell


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _at(name: str, *path: str | int, kind: str = "string", empty: Any = NONE, priority: int = 0) -> Column:
    def cell(obj: View, _: datetime) -> Any:
        found = dig(obj, *path)
        return empty if found in (None, "") else (_text(found) if kind == "string" else found)

    return Column(name, cell, kind, priority)


def _number(name: str, *path: str | int) -> Column:
    return _at(name, *path, kind="integer", empty=0)


_AGE = Column("Age", lambda obj, now: age(dig(obj, "metadata", "creationTimestamp"), now))


def _containers(field: str, *path: str) -> Cell:
    return lambda obj, _: (
        ",".join(str(each.get(field, "")) for each in dig(obj, *path, "containers") or ()) or NONE
    )


def _selector(obj: View, _: datetime) -> str:
    selector = dig(obj, "spec", "selector")
    return selector_text(selector) or NONE if isinstance(selector, Mapping) else NONE


_TEMPLATE = ("spec", "template", "spec")
_WIDE = (
    Column("Containers", _containers("name", *_TEMPLATE), priority=1),
    Column("Images", _containers("image", *_TEMPLATE), priority=1),
)
_SELECTOR = Column("Selector", _selector, priority=1)


def _ratio(top: tuple[str, ...], bottom: tuple[str, ...]) -> Cell:
    return lambda obj, _: f"{dig(obj, *top) or 0}/{dig(obj, *bottom) or 0}"


# Pods


def _pod_ready(pod: View, _: datetime) -> str:
    total = len(dig(pod, "spec", "containers") or ())
    ready = sum(bool(each.get("ready")) for each in dig(pod, "status", "containerStatuses") or ())
    return f"{ready}/{total}"


def pod_status(pod: View) -> str:
    """Give the word that kubectl shows as a pod's status."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if dig(pod, "status", "reason") == "NodeLost" else "Terminating"
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        return "SchedulingGated"
    for each in dig(pod, "status", "containerStatuses") or ():
        reason = dig(each, "state", "waiting", "reason") or dig(each, "state", "terminated", "reason")
        if reason and not (reason == "Completed" and dig(pod, "status", "phase") == "Running"):
            return str(reason)
    return str(dig(pod, "status", "reason") or dig(pod, "status", "phase") or "Pending")


def _restarts(pod: View, _: datetime) -> str:
    return str(sum(each.get("restartCount", 0) for each in dig(pod, "status", "containerStatuses") or ()))


def _gates(pod: View, _: datetime) -> str:
    gates = dig(pod, "spec", "readinessGates") or ()
    done = sum(
        (condition_of(pod, each.get("conditionType", "")) or {}).get("status") == "True" for each in gates
    )
    return f"{done}/{len(gates)}" if gates else NONE


# Nodes


def _node_status(node: View, _: datetime) -> str:
    ready = (condition_of(node, "Ready") or {}).get("status")
    word = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}.get(str(ready), "Unknown")
    return f"{word},SchedulingDisabled" if dig(node, "spec", "unschedulable") else word


def _roles(node: View, _: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels: Iterable[str] = dig(node, "metadata", "labels") or ()
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or NONE


def _address(kind: str) -> Cell:
    def cell(node: View, _: datetime) -> str:
        addresses = dig(node, "status", "addresses") or ()
        return next((str(each.get("address")) for each in addresses if each.get("type") == kind), NONE)

    return cell


# Events, jobs and the rest


def _event_seen(field: str) -> Cell:
    def cell(event: View, now: datetime) -> str:
        moment = event.get(field) or event.get("eventTime") or event.get("firstTimestamp")
        return age(moment or dig(event, "metadata", "creationTimestamp"), now)

    return cell


def _event_object(event: View, _: datetime) -> str:
    return f"{str(dig(event, 'involvedObject', 'kind') or '').lower()}/{dig(event, 'involvedObject', 'name') or ''}"


def _event_source(event: View, _: datetime) -> str:
    source = dig(event, "source", "component") or event.get("reportingComponent") or ""
    host = dig(event, "source", "host")
    return f"{source}, {host}" if host else str(source)


def _job_status(job: View, _: datetime) -> str:
    for kind, word in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if (condition_of(job, kind) or {}).get("status") == "True":
            return word
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def _job_completions(job: View, _: datetime) -> str:
    wanted = dig(job, "spec", "completions")
    done = dig(job, "status", "succeeded") or 0
    return f"{done}/{wanted}" if wanted else f"{done}/1 of {dig(job, 'spec', 'parallelism') or 1}"


def _job_duration(job: View, now: datetime) -> str:
    start = parse_timestamp(dig(job, "status", "startTime"))
    end = parse_timestamp(dig(job, "status", "completionTime")) or now
    return span((end - start).total_seconds()) if start else ""


def _count(field: str) -> Cell:
    return lambda obj, _: (
        len(obj.get(field) or ()) + (len(obj.get("binaryData") or ()) if field == "data" else 0)
    )


def _ports(service: View, _: datetime) -> str:
    ports = dig(service, "spec", "ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def _map_text(*path: str) -> Cell:
    return lambda obj, _: ",".join(f"{k}={v}" for k, v in sorted((dig(obj, *path) or {}).items())) or NONE


def _modes(*path: str) -> Cell:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return lambda obj, _: ",".join(short.get(mode, mode) for mode in dig(obj, *path, "accessModes") or ())


def _claim(volume: View, _: datetime) -> str:
    claim = dig(volume, "spec", "claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _allowed(field: str) -> Cell:
    def cell(budget: View, _: datetime) -> Any:
        found = dig(budget, "spec", field)
        return "N/A" if found is None else str(found)

    return cell


def _since(*path: str) -> Cell:
    return lambda obj, now: age(dig(obj, *path), now) if dig(obj, *path) else NONE


_REPLICAS = (
    _number("Desired", "spec", "replicas"),
    _number("Current", "status", "replicas"),
    _number("Ready", "status", "readyReplicas"),
    _AGE,
    *_WIDE,
    _SELECTOR,
)

_BUILTIN: Mapping[str, tuple[Column, ...]] = {
    "configmaps": (Column("Data", _count("data"), "integer"), _AGE),
    "csidrivers.storage.k8s.io": (_at("AttachRequired", "spec", "attachRequired", empty="true"), _AGE),
    "csinodes.storage.k8s.io": (
        Column("Drivers", lambda obj, _: len(dig(obj, "spec", "drivers") or ()), "integer"),
        _AGE,
    ),
    "cronjobs.batch": (
        _at("Schedule", "spec", "schedule"),
        _at("Timezone", "spec", "timeZone"),
        _at("Suspend", "spec", "suspend", empty="False"),
        Column("Active", lambda obj, _: len(dig(obj, "status", "active") or ()), "integer"),
        Column("Last Schedule", _since("status", "lastScheduleTime")),
        _AGE,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (_at("Created At", "metadata", "creationTimestamp"),),
    "daemonsets.apps": (
        _number("Desired", "status", "desiredNumberScheduled"),
        _number("Current", "status", "currentNumberScheduled"),
        _number("Ready", "status", "numberReady"),
        _number("Up-to-date", "status", "updatedNumberScheduled"),
        _number("Available", "status", "numberAvailable"),
        Column("Node Selector", _map_text(*_TEMPLATE, "nodeSelector")),
        _AGE,
        *_WIDE,
        _SELECTOR,
    ),
    "deployments.apps": (
        Column("Ready", _ratio(("status", "readyReplicas"), ("spec", "replicas"))),
        _number("Up-to-date", "status", "updatedReplicas"),
        _number("Available", "status", "availableReplicas"),
        _AGE,
        *_WIDE,
        _SELECTOR,
    ),
    "events": (
        Column("Last Seen", _event_seen("lastTimestamp")),
        _at("Type", "type", empty=""),
        _at("Reason", "reason", empty=""),
        Column("Object", _event_object),
        _at("Subobject", "involvedObject", "fieldPath", empty="", priority=1),
        Column("Source", _event_source, priority=1),
        Column("Message", lambda obj, _: str(obj.get("message", "")).strip()),
        Column("First Seen", _event_seen("firstTimestamp"), priority=1),
        _at("Count", "count", kind="string", empty="1", priority=1),
        Column("Name", lambda obj, _: name_of(obj), priority=1, format="name"),
    ),
    "jobs.batch": (
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
        *_WIDE,
        _SELECTOR,
    ),
    "leases.coordination.k8s.io": (_at("Holder", "spec", "holderIdentity", empty=""), _AGE),
    "namespaces": (_at("Status", "status", "phase"), _AGE),
    "nodes": (
        Column("Status", _node_status),
        Column("Roles", _roles),
        _AGE,
        _at("Version", "status", "nodeInfo", "kubeletVersion", empty=""),
        Column("Internal-IP", _address("InternalIP"), priority=1),
        Column("External-IP", _address("ExternalIP"), priority=1),
        _at("OS-Image", "status", "nodeInfo", "osImage", empty=UNKNOWN, priority=1),
        _at("Kernel-Version", "status", "nodeInfo", "kernelVersion", empty=UNKNOWN, priority=1),
        _at("Container-Runtime", "status", "nodeInfo", "containerRuntimeVersion", empty=UNKNOWN, priority=1),
    ),
    "persistentvolumeclaims": (
        _at("Status", "status", "phase", empty=""),
        _at("Volume", "spec", "volumeName", empty=""),
        _at("Capacity", "status", "capacity", "storage", empty=""),
        Column("Access Modes", _modes("status")),
        _at("StorageClass", "spec", "storageClassName", empty=""),
        _at("VolumeAttributesClass", "spec", "volumeAttributesClassName", empty="<unset>"),
        _AGE,
        _at("VolumeMode", "spec", "volumeMode", empty="<unset>", priority=1),
    ),
    "persistentvolumes": (
        _at("Capacity", "spec", "capacity", "storage", empty=""),
        Column("Access Modes", _modes("spec")),
        _at("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy", empty=""),
        _at("Status", "status", "phase", empty=""),
        Column("Claim", _claim),
        _at("StorageClass", "spec", "storageClassName", empty=""),
        _at("VolumeAttributesClass", "spec", "volumeAttributesClassName", empty="<unset>"),
        _at("Reason", "status", "reason", empty=""),
        _AGE,
        _at("VolumeMode", "spec", "volumeMode", empty="<unset>", priority=1),
    ),
    "poddisruptionbudgets.policy": (
        Column("Min Available", _allowed("minAvailable")),
        Column("Max Unavailable", _allowed("maxUnavailable")),
        _number("Allowed Disruptions", "status", "disruptionsAllowed"),
        _AGE,
    ),
    "pods": (
        Column("Ready", _pod_ready),
        Column("Status", lambda pod, _: pod_status(pod)),
        Column("Restarts", _restarts),
        _AGE,
        _at("IP", "status", "podIP", priority=1),
        _at("Node", "spec", "nodeName", priority=1),
        _at("Nominated Node", "status", "nominatedNodeName", priority=1),
        Column("Readiness Gates", _gates, priority=1),
    ),
    "podtemplates": (
        Column("Containers", _containers("name", "template", "spec")),
        Column("Images", _containers("image", "template", "spec")),
        Column("Pod Labels", _map_text("template", "metadata", "labels")),
    ),
    "priorityclasses.scheduling.k8s.io": (
        _number("Value", "value"),
        _at("Global-Default", "globalDefault", empty="false"),
        _AGE,
        _at("PreemptionPolicy", "preemptionPolicy", empty=""),
    ),
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": (
        *_REPLICAS[:-1],
        Column("Selector", _map_text("spec", "selector"), priority=1),
    ),
    "secrets": (_at("Type", "type", empty=""), Column("Data", _count("data"), "integer"), _AGE),
    "serviceaccounts": (Column("Secrets", _count("secrets"), "integer"), _AGE),
    "services": (
        _at("Type", "spec", "type"),
        _at("Cluster-IP", "spec", "clusterIP"),
        Column("External-IP", lambda _obj, _now: NONE),
        Column("Port(s)", _ports),
        _AGE,
        Column("Selector", _map_text("spec", "selector"), priority=1),
    ),
    "statefulsets.apps": (
        Column("Ready", _ratio(("status", "readyReplicas"), ("spec", "replicas"))),
        _AGE,
        *_WIDE,
    ),
    "storageclasses.storage.k8s.io": (
        _at("Provisioner", "provisioner"),
        _at("ReclaimPolicy", "reclaimPolicy"),
        _at("VolumeBindingMode", "volumeBindingMode"),
        _at("AllowVolumeExpansion", "allowVolumeExpansion", empty="false"),
        _AGE,
    ),
    "volumeattachments.storage.k8s.io": (
        _at("Attacher", "spec", "attacher"),
        _at("PV", "spec", "source", "persistentVolumeName"),
        _at("Node", "spec", "nodeName"),
        _at("Attached", "status", "attached", empty="false"),
        _AGE,
    ),
}
