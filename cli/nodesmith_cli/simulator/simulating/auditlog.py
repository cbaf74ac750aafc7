"""EKS audit logs as workloads: pods as they were created, bound, evicted and deleted.

Lines are audit events, alone or as CloudWatch Logs exports them: after a time, in a `message`, or in lists of events.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import parse_time
from nodesmith_cli.simulator.simulating.kubereplay import Replicas
from nodesmith_cli.simulator.simulating.workloads import Workloads

Event = Mapping[str, Any]
CLOUDWATCH = "cloudwatch"
STREAMS = "kube-apiserver-audit"
_READ = ("pods", "deployments")
_IGNORED = frozenset({"nodes", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"})
_OVER = frozenset({"Succeeded", "Failed"})
_LONGEST_LINE = 4 * 2**20
_LARGEST_DOCUMENT = 2**29
"""Characters of a log that is one JSON document. Larger logs must have an event in each line."""
FILTER = (
    '{ $.stage = "ResponseComplete" && ($.objectRef.resource = "pods" || $.objectRef.resource = "deployments") '
    '&& ($.verb = "create" || $.verb = "delete" || $.verb = "update" || $.verb = "patch") }'
)
"""What CloudWatch Logs is asked for: without it, reads of objects would be most of what is transferred."""


@dataclass(slots=True)
class _Log:
    """The events of a log that matter, as far as it has been read."""

    into: Workloads
    cluster: str = ""
    events: dict[str, tuple[datetime, Event]] = field(default_factory=dict)

    def line(self, text: str, *, is_last: bool = False) -> None:
        """Add one line."""
        is_list = "".join(text[:100].split()).startswith("[{")
        begin = text.find("[" if is_list else "{")
        if begin < 0:
            self.into.omissions["lines without an event"] += bool(text.strip())
            return
        try:
            found = json.loads(text[begin:])
        except (ValueError, RecursionError):
            reason = "the last line is cut off" if is_last else "lines that are not JSON"
            self.into.omissions[reason] += 1
            return
        self._add(found)

    def _add(self, found: Any) -> None:
        if isinstance(found, list):
            for event in found:
                self._add(event)
            return
        if not isinstance(found, Mapping):
            self.into.omissions["lines without an event"] += 1
            return
        group = str(found.get("logGroup") or found.get("logGroupName") or "")
        if self.cluster and group and group != group_of(self.cluster):
            self.into.omissions["lines of other clusters"] += len(found.get("logEvents") or "1")
            return
        for inner in ("events", "logEvents", "items"):
            if isinstance(found.get(inner), list):
                self._add(found[inner])
                return
        message = found.get("message", found.get("@message"))
        if isinstance(message, str):
            self.line(message)
        elif isinstance(message, Mapping):
            self._add(message)
        else:
            self._keep(found)

    def _keep(self, event: Event) -> None:
        about = event.get("objectRef")
        if not isinstance(about, Mapping) or "verb" not in event:
            self.into.omissions["objects that are not audit events"] += 1
            return
        resource = about.get("resource")
        code = (event.get("responseStatus") or {}).get("code")
        if event.get("stage", "ResponseComplete") != "ResponseComplete" or resource in _IGNORED:
            return
        if resource not in _READ:
            self.into.omissions["events of kinds that are not simulated"] += 1
            return
        if isinstance(code, int) and not 200 <= code < 300:
            return
        try:
            at = parse_time(str(event.get("requestReceivedTimestamp") or event["stageTimestamp"]))
        except (KeyError, ValueError):
            self.into.omissions["events without a time"] += 1
            return
        id_ = str(event.get("auditID") or f"line {len(self.events)}")
        if id_ in self.events:
            self.into.omissions["events that occur twice"] += 1
        else:
            self.events[id_] = at, event


def group_of(cluster: str) -> str:
    """Return the name of the CloudWatch log group of a cluster's control plane."""
    return f"/aws/eks/{cluster}/cluster"


def read_audit_log(lines: Iterable[str], source: str, cluster: str = "") -> tuple[Workloads, list[datetime]]:
    """Read a log; return its workloads and the times of its events. Unusable entries are counted."""
    workloads = Workloads(source)
    log = _Log(workloads, cluster)
    before: str | None = None
    for line in lines:
        if before is not None:
            log.line(before)
        before = line
    if before is not None:
        log.line(before, is_last=True)
    ordered = sorted(log.events.values(), key=lambda each: each[0])
    has_pods = any(_is_creation(event) for _, event in ordered)
    use: Callable[[Event, datetime], str] = _Pods(workloads).use if has_pods else _Deployments(workloads).use
    moments = []
    for at, event in ordered:
        try:
            reason = use(event, at)
        except (KeyError, TypeError, ValueError, AttributeError):
            reason = "events whose object is incomplete"
        if reason:
            workloads.omissions[reason] += 1
        else:
            moments.append(at)
    return workloads, moments


def _is_creation(event: Event) -> bool:
    about = event["objectRef"]
    return (about["resource"], event["verb"], about.get("subresource")) == ("pods", "create", None)


@dataclass(slots=True)
class _Pods:
    """Uses the events of pods, which say exactly what ran when."""

    into: Workloads
    first: datetime | None = None

    def use(self, event: Event, at: datetime) -> str:
        """Use one event; return why it cannot be used, or nothing."""
        about, verb = event["objectRef"], event["verb"]
        self.first = self.first or at
        if about["resource"] != "pods":
            return ""
        subresource, key = about.get("subresource"), f"{about.get('namespace')}/{about.get('name')}"
        if verb == "create" and subresource == "binding":
            seen = self.into.alive.get(key)
            if seen is not None:
                seen.bound_at = at
            return ""
        if verb == "create" and not subresource:
            return self._created(event, at)
        if verb == "delete" and not subresource:
            return self._deleted(key, event, at)
        if verb in ("patch", "update") and subresource == "status":
            phase = ((event.get("requestObject") or {}).get("status") or {}).get("phase")
            if phase in _OVER:
                self.into.end(key, at)
        return ""

    def _created(self, event: Event, at: datetime) -> str:
        pod = event.get("responseObject") or event.get("requestObject")
        if not isinstance(pod, Mapping) or "spec" not in pod:
            return "pods without their manifest: the audit policy records only metadata"
        about = pod.get("metadata") or {}
        name = about.get("name") or event["objectRef"].get("name")
        if not name:
            return "pods without a name: the log has no response objects"
        namespace = about.get("namespace") or event["objectRef"].get("namespace")
        self.into.create(f"{namespace}/{name}", pod, at)
        return ""

    def _deleted(self, key: str, event: Event, at: datetime) -> str:
        if self.into.end(key, at):
            return ""
        pod = event.get("responseObject")
        if not isinstance(pod, Mapping) or not isinstance(pod.get("spec"), Mapping):
            return "pods that ended, but were created before the log begins"
        created = (pod.get("metadata") or {}).get("creationTimestamp")
        born = parse_time(str(created)) if created else self.first or at
        if any(seen.key == key for seen in self.into.pods[-1000:]):
            return ""  # the kubelet's own deletion of a pod that has ended already
        self.into.create(key, pod, min(born, at))
        self.into.end(key, at)
        return ""


@dataclass(slots=True)
class _Deployments:
    """Uses the sizes of Deployments, for logs without the creation of pods."""

    into: Workloads
    replicas: Replicas = field(init=False)

    def __post_init__(self) -> None:
        self.replicas = Replicas(self.into)

    def use(self, event: Event, at: datetime) -> str:
        """Use one event; return why it cannot be used, or nothing."""
        about, verb = event["objectRef"], event["verb"]
        if about["resource"] != "deployments":
            return "events of pods whose creation is not in the log"
        key = f"{about['namespace']}/{about['name']}"
        if verb == "delete":
            return "" if self.replicas.delete(key, at) else "events of workloads whose creation is missing"
        found = event.get("responseObject") or event.get("requestObject")
        if not isinstance(found, Mapping):
            return "events without their object: the audit policy records only metadata"
        if about.get("subresource") == "scale":
            known = self.replicas.scale(key, int(found["spec"].get("replicas", 0)), at)
            return "" if known else "events of workloads whose creation is missing"
        if about.get("subresource") or "template" not in (found.get("spec") or {}):
            return ""
        self.replicas.create(key, found, at)
        return ""


def lines_of(path: str, omissions: dict[str, int]) -> Iterator[str]:
    """Yield the lines of a file, compressed or not; `-` is standard input. A file that is cut off ends early.

    Raises Rejected if it cannot be read.
    """
    if path == "-":
        yield from sys.stdin
        return
    try:
        with Path(path).open("rb") as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
        with (
            gzip.open(path, "rt", errors="replace") if is_gzip else Path(path).open(errors="replace") as text
        ):
            first = text.readline(_LONGEST_LINE)
            if first.strip() in ("{", "["):  # one document over many lines, as the AWS CLI prints it
                yield " ".join((first + text.read(_LARGEST_DOCUMENT)).split("\n"))
                return
            yield first
            while line := text.readline(_LONGEST_LINE):
                yield line
    except (EOFError, zlib.error):
        omissions["the file is cut off"] = 1
    except OSError as error:
        raise Rejected(f"--audit-log {path}: {error.strerror or error}") from None


def cloudwatch_lines(client: Any, cluster: str, since: timedelta, now: datetime) -> Iterator[str]:
    """Yield the events of a cluster's audit log from CloudWatch Logs. `client` is a boto3 client.

    Raises Rejected or Transient with the error from CloudWatch Logs.
    """
    from nodesmith.adapters.aws.calls import all_errors

    group = group_of(cluster)
    asked = {
        "logGroupName": group,
        "logStreamNamePrefix": STREAMS,
        "filterPattern": FILTER,
        "startTime": int((now - since).timestamp() * 1000),
        "endTime": int(now.timestamp() * 1000),
    }
    with all_errors(f"log group {group!r}"):
        for page in client.get_paginator("filter_log_events").paginate(**asked):
            yield from (str(event["message"]) for event in page.get("events") or ())
