"""Cells that only one kind has, such as the status of pods, nodes and jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from nodesmith_formats.kubernetes.objects import View, condition_of, dig, parse_timestamp
from nodesmith_local.apiserver.tables.ages import age, span
from nodesmith_local.apiserver.tables.cells import NONE, Cell


def pod_ready(pod: View, _: datetime) -> str:
    """Show the number of ready containers."""
    total = len(dig(pod, "spec", "containers") or ())
    statuses = dig(pod, "status", "containerStatuses") or ()
    ready = sum(
        bool(status.get("ready")) and dig(status, "state", "running") is not None for status in statuses
    )
    return f"{ready}/{total}"


def pod_status(pod: View) -> str:
    """Return the word that kubectl shows as a pod's status."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Unknown" if dig(pod, "status", "reason") == "NodeLost" else "Terminating"
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled and scheduled.get("reason") == "SchedulingGated":
        return "SchedulingGated"
    for container in dig(pod, "status", "containerStatuses") or ():
        reason = dig(container, "state", "waiting", "reason") or dig(
            container, "state", "terminated", "reason"
        )
        if reason and not (reason == "Completed" and dig(pod, "status", "phase") == "Running"):
            return str(reason)
    return str(dig(pod, "status", "reason") or dig(pod, "status", "phase") or "Pending")


def restarts(pod: View, _: datetime) -> str:
    """Show the number of container restarts."""
    return str(
        sum(container.get("restartCount", 0) for container in dig(pod, "status", "containerStatuses") or ())
    )


def gates(pod: View, _: datetime) -> str:
    """Show the number of readiness gates that have passed."""
    gates = dig(pod, "spec", "readinessGates") or ()
    passed = sum(
        (condition_of(pod, gate.get("conditionType", "")) or {}).get("status") == "True" for gate in gates
    )
    return f"{passed}/{len(gates)}" if gates else NONE


def node_status(node: View, _: datetime) -> str:
    """Show whether a node is Ready, and whether it is cordoned."""
    ready = (condition_of(node, "Ready") or {}).get("status")
    text = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}.get(str(ready), "Unknown")
    return f"{text},SchedulingDisabled" if dig(node, "spec", "unschedulable") else text


def roles(node: View, _: datetime) -> str:
    """Show a node's roles, read from its labels."""
    prefix = "node-role.kubernetes.io/"
    labels: Iterable[str] = dig(node, "metadata", "labels") or ()
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or NONE


def address(kind: str) -> Cell:
    """Return a cell function for a node's address of type `kind`."""

    def cell(node: View, _: datetime) -> str:
        addresses = dig(node, "status", "addresses") or ()
        return next((str(entry.get("address")) for entry in addresses if entry.get("type") == kind), NONE)

    return cell


def event_seen(field: str) -> Cell:
    """Return a cell function that shows how long ago an event was."""

    def cell(event: View, now: datetime) -> str:
        moment = event.get(field) or event.get("eventTime") or event.get("firstTimestamp")
        return age(moment or dig(event, "metadata", "creationTimestamp"), now)

    return cell


def event_object(event: View, _: datetime) -> str:
    """Show the object of an event."""
    return f"{str(dig(event, 'involvedObject', 'kind') or '').lower()}/{dig(event, 'involvedObject', 'name') or ''}"


def event_source(event: View, _: datetime) -> str:
    """Show the component that wrote an event."""
    source = dig(event, "source", "component") or event.get("reportingComponent") or ""
    host = dig(event, "source", "host")
    return f"{source}, {host}" if host else str(source)


def job_status(job: View, _: datetime) -> str:
    """Show the state of a Job."""
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        if (condition_of(job, kind) or {}).get("status") == "True":
            return text
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def job_completions(job: View, _: datetime) -> str:
    """Show how many pods of a Job have succeeded."""
    completions = dig(job, "spec", "completions")
    succeeded = dig(job, "status", "succeeded") or 0
    return (
        f"{succeeded}/{completions}"
        if completions
        else f"{succeeded}/1 of {dig(job, 'spec', 'parallelism') or 1}"
    )


def job_duration(job: View, now: datetime) -> str:
    """Show how long a Job has run."""
    start = parse_timestamp(dig(job, "status", "startTime"))
    end = parse_timestamp(dig(job, "status", "completionTime")) or now
    return span((end - start).total_seconds()) if start else ""


def count(field: str) -> Cell:
    """Return a cell function that counts the entries of a field."""
    return lambda obj, _: (
        len(obj.get(field) or ()) + (len(obj.get("binaryData") or ()) if field == "data" else 0)
    )


def ports(service: View, _: datetime) -> str:
    """Show the ports of a service."""
    ports = dig(service, "spec", "ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or NONE


def map_text(*path: str) -> Cell:
    """Return a cell function that shows a map as `a=b,c=d`."""
    return lambda obj, _: ",".join(f"{k}={v}" for k, v in sorted((dig(obj, *path) or {}).items())) or NONE


def modes(*path: str) -> Cell:
    """Return a cell function that shows access modes in their short form."""
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return lambda obj, _: ",".join(short.get(mode, mode) for mode in dig(obj, *path, "accessModes") or ())


def claim(volume: View, _: datetime) -> str:
    """Show the claim of a volume."""
    claim = dig(volume, "spec", "claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def allowed(field: str) -> Cell:
    """Return a cell function for a PodDisruptionBudget's limit."""

    def cell(budget: View, _: datetime) -> Any:
        limit = dig(budget, "spec", field)
        return "N/A" if limit is None else str(limit)

    return cell


def since(*path: str) -> Cell:
    """Return a cell function that shows how long ago the time at `path` was."""
    return lambda obj, now: age(dig(obj, *path), now) if dig(obj, *path) else NONE
