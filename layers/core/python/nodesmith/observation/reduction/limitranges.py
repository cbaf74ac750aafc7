"""Apply a namespace's LimitRanges and a RuntimeClass to a pod template, as admission does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.reduction.podspecs import without_empty

_CONTAINERS = ("containers", "initContainers")


def reduce_limit_range(manifest: Manifest) -> dict[str, Any]:
    """Keep the default requests of containers. Raises KeyError, TypeError or AttributeError.

    The fields of an item are defaults for each other as in the API server (kubernetes: SetDefaults_LimitRangeItem). If
    several items apply, the first wins.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    given: dict[str, Any] = {}
    for item in spec.get("limits") or ():
        if item.get("type") == "Container":
            parts = (item.get(name) or {} for name in ("min", "max", "default", "defaultRequest"))
            given = {**{name: amount for part in parts for name, amount in part.items()}, **given}
    about = {"namespace": str(metadata["namespace"]), "name": str(metadata["name"])}
    return {"metadata": about, "requests": given}


def reduce_runtime_class(manifest: Manifest) -> dict[str, Any]:
    """Keep what a RuntimeClass adds to a pod. Raises KeyError, TypeError or AttributeError."""
    scheduling = manifest.get("scheduling") or {}
    kept = {
        "overhead": (manifest.get("overhead") or {}).get("podFixed"),
        "nodeSelector": scheduling.get("nodeSelector"),
        "tolerations": scheduling.get("tolerations"),
    }
    return {"metadata": {"name": str(manifest["metadata"]["name"])}, "spec": without_empty(kept)}


def with_default_requests(spec: Manifest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with default requests for its containers. A container's own limit counts as a request."""
    if not defaults:
        return dict(spec)
    changed = {part: [_container(c, defaults) for c in spec[part]] for part in _CONTAINERS if spec.get(part)}
    return {**spec, **changed}


def with_runtime_class(spec: Manifest, added: Manifest) -> dict[str, Any]:
    """Return the spec with what a RuntimeClass adds, unless it is already there."""
    tolerations = list(spec.get("tolerations") or ())
    kept = {
        "overhead": spec.get("overhead") or added.get("overhead"),
        "nodeSelector": {**(added.get("nodeSelector") or {}), **(spec.get("nodeSelector") or {})},
        "tolerations": tolerations + [t for t in added.get("tolerations") or () if t not in tolerations],
    }
    return {**spec, **without_empty(kept)}


def _container(container: Manifest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    own = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": {**defaults, **own}}}
