"""Reduce a pod's spec to its requests, where it may run, and how it ends, and apply LimitRanges and RuntimeClasses.

While a container is resized in place, both its requests and its allocated resources are kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from nodesmith.model.kubernetes.pods import CRITICAL_CLASSES, DEFAULT_GRACE_SECONDS, Manifest

_PARTS = ("containers", "initContainers")


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without values that mean the same as an absent field, so that equivalent objects are equal."""
    return {name: value for name, value in fields.items() if value not in (None, "", 0, [], {})}


def interned(texts: Mapping[str, str] | None) -> dict[str, str]:
    """Return texts by name as a dict that shares them with equal ones: most labels of most nodes are the same.

    Raises TypeError for anything but texts.
    """
    return {sys.intern(name): sys.intern(text) for name, text in (texts or {}).items()}


_FEW_CHARACTERS = 1000


def shared_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels of a pod, which it shares with pods that have the same."""
    texts = tuple((str(key), str(text)) for key, text in labels.items())
    is_long = sum(len(key) + len(text) for key, text in texts) > _FEW_CHARACTERS
    return dict(texts) if is_long else _one_of(texts)


@lru_cache(maxsize=8192)
def _one_of(texts: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {sys.intern(key): sys.intern(text) for key, text in texts}


def reduce_spec(spec: Manifest) -> dict[str, Any]:
    """Keep what determines a pod's resources, where it may run and how long it may take to end."""
    reduced = {
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
        "schedulingGates": [{"name": gate.get("name")} for gate in spec.get("schedulingGates") or ()],
        "priorityClassName": name if (name := spec.get("priorityClassName")) in CRITICAL_CLASSES else None,
    }
    return {**without_empty(reduced), **_grace(spec.get("terminationGracePeriodSeconds"))}


def _grace(seconds: int | None) -> dict[str, int]:
    """Keep a grace period other than the default. Zero is not the default."""
    return {} if seconds in (None, DEFAULT_GRACE_SECONDS) else {"terminationGracePeriodSeconds": seconds}


def _container(container: Manifest, spec: Manifest) -> dict[str, Any]:
    """Keep a container's resources and host ports.

    With hostNetwork, container ports are host ports. Pods state these as hostPort, but templates do not.
    """
    declared = container.get("ports") or ()
    ports = (
        [{"hostPort": port.get("containerPort"), **port} for port in declared]
        if spec.get("hostNetwork")
        else declared
    )
    reduced = {
        "name": container.get("name"),
        "resources": _requests(container),
        "restartPolicy": container.get("restartPolicy"),
        "ports": [
            without_empty({name: port.get(name) for name in ("hostIP", "hostPort", "protocol")})
            for port in ports
            if port.get("hostPort")
        ],
    }
    return without_empty(reduced)


def _pod_level(spec: Manifest) -> dict[str, Any]:
    resources = spec.get("resources") or {}
    return without_empty({name: resources.get(name) for name in ("limits", "requests")})


def _requests(holder: Manifest) -> dict[str, Any]:
    """Keep the requests. A limit without a request counts as the request, as in pods from the API, unlike templates."""
    resources = holder.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {"requests": requests} if requests else {}


def limits_text(spec: Manifest) -> str:
    """Return the limits of a pod's containers as JSON, for metrics, empty if it has none."""
    limits = {part: list(filter(None, map(_limits, spec.get(part) or ()))) for part in _PARTS}
    own_limits = _limits(spec)
    return (
        json.dumps({**limits, **own_limits}, separators=(",", ":"))
        if own_limits or any(limits.values())
        else ""
    )


def _limits(holder: Manifest) -> dict[str, Any]:
    limits = (holder.get("resources") or {}).get("limits")
    again = {"restartPolicy": "Always"} if holder.get("restartPolicy") == "Always" else {}
    return {"resources": {"limits": limits}, **again} if limits else {}


def resized(spec: Manifest, statuses: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Keep the allocated resources of containers if they differ from the requests, during a resize in place."""
    requests = {c.get("name"): _requests(c).get("requests") or {} for c in _containers(spec)}
    changed = []
    for status in statuses:
        allocated = status.get("allocatedResources") or {}
        actual = (status.get("resources") or {}).get("requests") or {}
        requested = requests.get(status.get("name"), {})
        if any(
            amount != requested.get(name) for part in (allocated, actual) for name, amount in part.items()
        ):
            changed.append(
                {"name": status["name"], "allocatedResources": allocated, "resources": {"requests": actual}}
            )
    return changed


def with_infeasible(spec: Manifest, status: Manifest) -> Manifest:
    """Return the spec with allocated resources instead of requests if the kubelet reports a resize as infeasible."""
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
    """Return the statuses of all containers, including init containers."""
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def _containers(spec: Manifest) -> list[Manifest]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def images_of(spec: Manifest) -> list[str]:
    """Return the images of a pod's containers, each once, in their order."""
    images = (container.get("image") for container in _containers(spec))
    return list(dict.fromkeys(str(image) for image in images if image))


_CONTAINERS = ("containers", "initContainers")


def reduce_limit_range(manifest: Manifest) -> dict[str, Any]:
    """Keep the default requests of containers. Raises KeyError, TypeError or AttributeError.

    The fields of an item are defaults for each other as in the API server (kubernetes: SetDefaults_LimitRangeItem). If
    several items apply, the first wins.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    defaults: dict[str, Any] = {}
    for item in spec.get("limits") or ():
        if item.get("type") == "Container":
            parts = (item.get(name) or {} for name in ("min", "max", "default", "defaultRequest"))
            defaults = {**{name: amount for part in parts for name, amount in part.items()}, **defaults}
    about = {"namespace": str(metadata["namespace"]), "name": str(metadata["name"])}
    return {"metadata": about, "requests": defaults}


def reduce_runtime_class(manifest: Manifest) -> dict[str, Any]:
    """Keep what a RuntimeClass adds to a pod. Raises KeyError, TypeError or AttributeError."""
    scheduling = manifest.get("scheduling") or {}
    reduced = {
        "overhead": (manifest.get("overhead") or {}).get("podFixed"),
        "nodeSelector": scheduling.get("nodeSelector"),
        "tolerations": scheduling.get("tolerations"),
    }
    return {"metadata": {"name": str(manifest["metadata"]["name"])}, "spec": without_empty(reduced)}


def with_default_requests(spec: Manifest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with default requests for its containers. A container's own limit counts as a request."""
    if not defaults:
        return dict(spec)
    changed = {
        part: [_limited_container(c, defaults) for c in spec[part]] for part in _CONTAINERS if spec.get(part)
    }
    return {**spec, **changed}


def with_runtime_class(spec: Manifest, added: Manifest) -> dict[str, Any]:
    """Return the spec with what a RuntimeClass adds, unless it is already there."""
    tolerations = list(spec.get("tolerations") or ())
    added_fields = {
        "overhead": spec.get("overhead") or added.get("overhead"),
        "nodeSelector": {**(added.get("nodeSelector") or {}), **(spec.get("nodeSelector") or {})},
        "tolerations": tolerations + [t for t in added.get("tolerations") or () if t not in tolerations],
    }
    return {**spec, **without_empty(added_fields)}


def _limited_container(container: Manifest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    own_requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": {**defaults, **own_requests}}}
