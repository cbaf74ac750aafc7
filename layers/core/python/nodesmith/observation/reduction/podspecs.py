"""A pod's spec reduced to what a decision reads: what it asks for, where it may go, how it ends.

While a container is resized in place, what it is allocated is kept beside what it asks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.kubernetes.shapes import CRITICAL_CLASSES, DEFAULT_GRACE_SECONDS

_PARTS = ("containers", "initContainers")


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what Kubernetes reads like an absent field, so that alike objects become equal."""
    return {name: value for name, value in fields.items() if value not in (None, "", 0, [], {})}


def reduce_spec(spec: Manifest) -> dict[str, Any]:
    """Keep what says how much a pod takes, where it may be and how long its end may take."""
    kept = {
        "nodeSelector": spec.get("nodeSelector"),
        "affinity": spec.get("affinity"),
        "topologySpreadConstraints": spec.get("topologySpreadConstraints"),
        "tolerations": [
            without_empty({name: t.get(name) for name in ("key", "operator", "value", "effect")})
            for t in spec.get("tolerations") or ()
        ],
        "containers": [_container(c, spec) for c in spec.get("containers") or ()],
        "initContainers": [_container(c, spec) for c in spec.get("initContainers") or ()],
        "resourceClaims": [{"name": c.get("name")} for c in spec.get("resourceClaims") or ()],
        "resources": _pod_level(spec),
        "overhead": spec.get("overhead"),
        "priority": spec.get("priority"),
        "priorityClassName": name if (name := spec.get("priorityClassName")) in CRITICAL_CLASSES else None,
    }
    return {**without_empty(kept), **_grace(spec.get("terminationGracePeriodSeconds"))}


def _grace(seconds: int | None) -> dict[str, int]:
    """Keep a grace that is not the default; none at all is not the default either."""
    return {} if seconds in (None, DEFAULT_GRACE_SECONDS) else {"terminationGracePeriodSeconds": seconds}


def _container(container: Manifest, spec: Manifest) -> dict[str, Any]:
    """Keep what a container takes. On the host's network its ports are the host's: templates do not say so, pods do."""
    own = container.get("ports") or ()
    ports = (
        [{"hostPort": port.get("containerPort"), **port} for port in own] if spec.get("hostNetwork") else own
    )
    kept = {
        "name": container.get("name"),
        "resources": _requests(container),
        "restartPolicy": container.get("restartPolicy"),
        "ports": [
            without_empty({name: port.get(name) for name in ("hostIP", "hostPort", "protocol")})
            for port in ports
            if port.get("hostPort")
        ],
    }
    return without_empty(kept)


def _pod_level(spec: Manifest) -> dict[str, Any]:
    resources = spec.get("resources") or {}
    return without_empty({name: resources.get(name) for name in ("limits", "requests")})


def _requests(holder: Manifest) -> dict[str, Any]:
    """Keep the requests; a limit without a request is the request (pods of the API have it so, templates not)."""
    resources = holder.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {"requests": requests} if requests else {}


def limits_text(spec: Manifest) -> str:
    """Write the limits of a pod's containers, by which metrics show what it may take; empty where it has none."""
    kept = {part: list(filter(None, map(_limits, spec.get(part) or ()))) for part in _PARTS}
    own = _limits(spec)
    return json.dumps({**kept, **own}, separators=(",", ":")) if own or any(kept.values()) else ""


def _limits(holder: Manifest) -> dict[str, Any]:
    limits = (holder.get("resources") or {}).get("limits")
    again = {"restartPolicy": "Always"} if holder.get("restartPolicy") == "Always" else {}
    return {"resources": {"limits": limits}, **again} if limits else {}


def resized(spec: Manifest, statuses: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Keep what containers are allocated only where it differs from what they ask: while resized in place."""
    asked = {c.get("name"): _requests(c).get("requests") or {} for c in _containers(spec)}
    kept = []
    for status in statuses:
        allocated = status.get("allocatedResources") or {}
        actual = (status.get("resources") or {}).get("requests") or {}
        wanted = asked.get(status.get("name"), {})
        if any(amount != wanted.get(name) for part in (allocated, actual) for name, amount in part.items()):
            kept.append(
                {"name": status["name"], "allocatedResources": allocated, "resources": {"requests": actual}}
            )
    return kept


def with_infeasible(spec: Manifest, status: Manifest) -> Manifest:
    """Take back a resize in place that the kubelet has called infeasible: what is allocated counts, as asked before."""
    conditions = status.get("conditions") or ()
    if not any(c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible" for c in conditions):
        return spec
    allocated = {
        s["name"]: s["allocatedResources"] for s in container_statuses(status) if s.get("allocatedResources")
    }
    taken_back = {
        part: [
            {**c, "resources": {"requests": allocated[c["name"]]}} if c.get("name") in allocated else c
            for c in spec.get(part) or ()
        ]
        for part in ("containers", "initContainers")
    }
    return {**spec, **taken_back}


def container_statuses(status: Manifest) -> list[Manifest]:
    """Return the statuses of all containers, those that run first included."""
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def _containers(spec: Manifest) -> list[Manifest]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
