"""How many pods a workload's controller wants, for proactive scale-up.

Deployments are not read: their controller sets the sizes of their ReplicaSets, within maxSurge, within milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.pods import PROACTIVE, SCALE_UP_DELAY, Manifest

_JOB_CONTROLLER = "kubernetes.io/job-controller"
_MAKE_CLAIMS = ("persistentVolumeClaim", "ephemeral")


def reduce_size(manifest: Manifest, *, is_job: bool = False) -> dict[str, Any] | None:
    """Return how many pods a ReplicaSet, StatefulSet or Job wants now, and when it was created, in seconds since 1970.

    `serial` is True if each pod is only created once the one before it is ready. Return None for workloads whose pods
    nobody can plan before they exist, or whose controller cannot create them.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    metadata, spec = manifest["metadata"], manifest["spec"]
    if _is_left_out(metadata, manifest) or not metadata.get("creationTimestamp"):
        return None
    wanted = _wanted_by_job(manifest) if is_job else spec.get("replicas", 1)
    size = {"wanted": int(wanted), "created": int(parse_time(metadata["creationTimestamp"]).timestamp())}
    is_serial = "serviceName" in spec and spec.get("podManagementPolicy") != "Parallel"
    return {**size, "serial": True} if is_serial else size


def _is_left_out(metadata: Manifest, manifest: Manifest) -> bool:
    """Return whether a workload's pods cannot be planned.

    It opts out or is being deleted, its pods are already refused (by a quota or a webhook), their place depends on
    volumes or on something else that does not exist yet, or a delay or a gate holds them.
    """
    spec, template = manifest["spec"], manifest["spec"]["template"]
    pod, about = template.get("spec") or {}, template.get("metadata") or {}
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return bool(
        (metadata.get("annotations") or {}).get(PROACTIVE) == "false"
        or metadata.get("deletionTimestamp")
        or _holds("ReplicaFailure", conditions)
        or spec.get("volumeClaimTemplates")
        or any(volume.get(kind) for volume in pod.get("volumes") or () for kind in _MAKE_CLAIMS)
        or pod.get("nodeName")
        or pod.get("schedulingGates")
        or pod.get("resourceClaims")
        or SCALE_UP_DELAY in (about.get("annotations") or {})
    )


def _wanted_by_job(manifest: Manifest) -> int:
    """Return how many pods of a Job may run at once of those that have not succeeded; none once it is over.

    Without `completions`, the first success means that no further pods are created.
    """
    spec, status = manifest["spec"], manifest.get("status") or {}
    conditions = status.get("conditions") or ()
    if spec.get("suspend") or spec.get("managedBy", _JOB_CONTROLLER) != _JOB_CONTROLLER:
        return 0
    if any(
        _holds(kind, conditions) for kind in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
    ):
        return 0
    parallelism, succeeded = int(spec.get("parallelism", 1)), int(status.get("succeeded") or 0)
    completions = spec.get("completions")
    if completions is None:
        return 0 if succeeded else parallelism
    return max(0, min(parallelism, int(completions) - succeeded))


def _holds(kind: str, conditions: Iterable[Manifest]) -> bool:
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)
