"""Reduce PodDisruptionBudgets to what determines whether a pod may be evicted."""

from __future__ import annotations

from typing import Any

from nodesmith.model.kubernetes.evictions import parse_budget
from nodesmith.model.kubernetes.pods import Manifest

_METADATA = ("namespace", "name", "generation")
_SPEC = ("selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy")
_STATUS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods", "observedGeneration")


def reduce_budget(manifest: Manifest) -> dict[str, Any]:
    """Keep a PodDisruptionBudget's spec and the counts in its status, but not the pods whose evictions are in progress.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    parse_budget(manifest)
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    about = {"namespace": str(metadata["namespace"]), "name": str(metadata["name"])}
    return {
        "metadata": {**_kept(metadata, _METADATA), **about},
        "spec": _kept(spec, _SPEC),
        "status": _kept(status, _STATUS),
    }


def _kept(part: Manifest, names: tuple[str, ...]) -> dict[str, Any]:
    """Keep the fields that are set. Zero and an empty selector have a meaning here."""
    return {name: part[name] for name in names if part.get(name) is not None}
