"""The `replay.json` of kubereplay, the tool of Karpenter's AWS provider: Deployments and Jobs as they were created.

The file has `cluster`, `captured` and `events`. An event has `type` (create, scale, delete), `kind` (Deployment, Job),
`key` (namespace/name), `timestamp`, and the object or its `replicas`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.times import parse_time
from nodesmith_cli.planning.workloads import pod_from, template_hash
from nodesmith_cli.simulator.simulating.workloads import MOST_PODS, Workloads

Manifest = Mapping[str, Any]
JOB_RUNS = timedelta(minutes=10)
"""How long a pod of a Job is assumed to run: kubereplay does not record it."""
_KINDS, _TYPES = ("Deployment", "Job"), ("create", "scale", "delete")
_LARGEST_BYTES = 2**30


@dataclass(slots=True)
class Replicas:
    """Turns sizes of workloads into pods: growth creates pods, and the newest pods end first."""

    into: Workloads
    _templates: dict[str, tuple[Manifest, Manifest]] = field(default_factory=dict)
    """Workload (namespace/name) → its owner and its template."""
    _pods: dict[str, list[str]] = field(default_factory=dict)
    _number: int = 0

    def create(self, key: str, deployment: Manifest, at: datetime) -> None:
        """Note a Deployment, or a new template of a known one."""
        template = deployment["spec"]["template"]
        mark = template_hash(template)
        namespace, _, name = key.partition("/")
        about = {"namespace": namespace, "uid": f"uid-{key}", "creationTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {**about, "name": f"{name}-{mark}"},
        }
        wanted = deployment["spec"].get("replicas", 1)
        if key in self._templates and self._templates[key][0]["metadata"]["name"] != f"{name}-{mark}":
            self.scale(key, 0, at)
        self._templates[key] = owner, template
        self.scale(key, int(wanted), at)

    def scale(self, key: str, wanted: int, at: datetime) -> bool:
        """Note a new size. Return whether the workload is known."""
        known = self._templates.get(key)
        if known is None:
            return False
        pods = self._pods.setdefault(key, [])
        for _ in range(len(pods) - max(0, wanted)):
            self.into.end(pods.pop(), at)
        for _ in range(min(wanted, MOST_PODS) - len(pods)):
            self._number += 1
            name = f"{known[0]['metadata']['name']}-{self._number}"
            pods.append(f"{key.partition('/')[0]}/{name}")
            self.into.create(pods[-1], pod_from(*known, name, {}), at)
        return True

    def delete(self, key: str, at: datetime) -> bool:
        """Note the end of a workload. Return whether it was known."""
        is_known = self.scale(key, 0, at)
        self._templates.pop(key, None)
        return is_known

    def job(self, key: str, job: Manifest, at: datetime, runs: timedelta) -> None:
        """Note a Job. Its completions beyond its parallelism run one after the other."""
        spec, (namespace, _, name) = job["spec"], key.partition("/")
        completions = spec.get("completions")
        parallelism = int(spec.get("parallelism") or 1)
        at_once = parallelism if completions is None else min(parallelism, int(completions))
        waves = 1 if completions is None else -(-int(completions) // max(1, at_once))
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{key}",
                "creationTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}",
            },
        }
        labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
        for _ in range(min(at_once, MOST_PODS)):
            self._number += 1
            pod = f"{name}-{self._number}"
            self.into.create(
                f"{namespace}/{pod}", pod_from(owner, spec["template"], pod, labels), at, runs * waves
            )


def read_kubereplay(path: str, job_runs: timedelta = JOB_RUNS) -> tuple[Workloads, list[datetime], str]:
    """Read a file. Return its workloads, the times of its events, and the name of its cluster.

    Events that cannot be used are counted. Raises Rejected for a file that is something else.
    """
    document = _document(path)
    workloads = Workloads(path)
    replicas, moments = Replicas(workloads), list[datetime]()
    for at, event in sorted(_events(document["events"], workloads), key=lambda each: each[0]):
        try:
            used = _use(event, at, replicas, job_runs)
        except (KeyError, TypeError, ValueError, AttributeError):
            used = "events whose object is incomplete"
        if used:
            workloads.omissions[used] += 1
        else:
            moments.append(at)
    return workloads, moments, str(document.get("cluster") or "")


def _use(event: Manifest, at: datetime, replicas: Replicas, job_runs: timedelta) -> str:
    """Use one event; return why it cannot be used, or nothing."""
    kind, type_, key = event.get("kind"), event.get("type"), str(event["key"])
    if kind not in _KINDS:
        return f"events of the kind {str(kind)[:40]!r}{did_you_mean(str(kind)[:40], _KINDS)}"
    if type_ not in _TYPES:
        return f"events of the type {str(type_)[:40]!r}{did_you_mean(str(type_)[:40], _TYPES)}"
    if kind == "Job":
        if type_ != "create":
            return ""
        job = event["job"]
        replicas.job(key, job, at, _observed(job) or job_runs)
        return ""
    if type_ == "create":
        replicas.create(key, event["deployment"], at)
        return ""
    is_scaled = type_ == "scale"
    is_known = replicas.scale(key, int(event["replicas"]), at) if is_scaled else replicas.delete(key, at)
    return "" if is_known else "events of workloads whose creation is missing"


def _observed(job: Manifest) -> timedelta | None:
    status = job.get("status") or {}
    if status.get("startTime") and status.get("completionTime"):
        return max(
            parse_time(status["completionTime"]) - parse_time(status["startTime"]), timedelta(seconds=1)
        )
    return None


def _events(events: Any, workloads: Workloads) -> Iterator[tuple[datetime, Manifest]]:
    seen: set[str] = set()
    for event in events:
        try:
            at = parse_time(str(event["timestamp"]))
        except (KeyError, TypeError, ValueError):
            workloads.omissions["events without a time"] += 1
            continue
        text = json.dumps(event, sort_keys=True)
        if text in seen:
            workloads.omissions["events that occur twice"] += 1
            continue
        seen.add(text)
        yield at, event


def _document(path: str) -> dict[str, Any]:
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        document = json.loads(data)
    except OSError as error:
        raise Rejected(f"--replay {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, RecursionError) as error:
        raise Rejected(f"--replay {path}: not JSON, or cut off: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("events"), list):
        hint = ": it looks like an audit log, use --audit-log" if '"auditID"' in str(document)[:2000] else ""
        raise Rejected(f"--replay {path}: not a file of kubereplay: the list 'events' is missing{hint}")
    return document
