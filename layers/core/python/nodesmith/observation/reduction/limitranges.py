"""What a namespace's LimitRanges and a RuntimeClass make of a pod that is made from a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.reduction.podspecs import without_empty

_CONTAINERS = ("containers", "initContainers")


def reduce_limit_range(manifest: Manifest) -> dict[str, Any]:
    """Keep what containers without a request of their own are given. Raises KeyError, TypeError or AttributeError.

    An item's defaults complete each other as the API server's do (kubernetes: SetDefaults_LimitRangeItem); of two items
    the first counts.
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
    """Keep what the class adds to a pod. Raises KeyError, TypeError or AttributeError."""
    scheduling = manifest.get("scheduling") or {}
    kept = {
        "overhead": (manifest.get("overhead") or {}).get("podFixed"),
        "nodeSelector": scheduling.get("nodeSelector"),
        "tolerations": scheduling.get("tolerations"),
    }
    return {"metadata": {"name": str(manifest["metadata"]["name"])}, "spec": without_empty(kept)}


def with_default_requests(spec: Manifest, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return containers the requests that they do not say themselves. A limit of theirs is a request already."""
    if not defaults:
        return dict(spec)
    changed = {part: [_container(c, defaults) for c in spec[part]] for part in _CONTAINERS if spec.get(part)}
    return {**spec, **changed}


def with_runtime_class(spec: Manifest, added: Manifest) -> dict[str, Any]:
    """Add what a RuntimeClass adds; what a pod has been given already is not added again."""
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
