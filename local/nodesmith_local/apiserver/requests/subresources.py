"""The subresources scale, binding and eviction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nodesmith_formats.kubernetes.errors import (
    ApiError,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid,
    invalid_value,
    unsupported,
)
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import (
    Object,
    View,
    condition_of,
    dig,
    is_true,
    labels_of,
    name_of,
    namespace_of,
    replaced,
    timestamp,
)
from nodesmith_formats.kubernetes.selectors import selector_matcher, selector_text
from nodesmith_local.apiserver.storage.deletion import DeleteOptions, Propagation, check_preconditions
from nodesmith_local.apiserver.storage.store import Store, Write

_MOST_DISRUPTED = 2000
_PROPAGATIONS: Mapping[str, Propagation] = {
    "Background": "Background",
    "Foreground": "Foreground",
    "Orphan": "Orphan",
}


def scale_of(resource: Resource, obj: View) -> Object:
    """Return the autoscaling/v1 Scale of an object."""
    paths = resource.scale
    if paths is None:
        raise ApiError(404, "NotFound", f"{resource.name} has no scale subresource")
    selector = dig(obj, *paths.selector) if paths.selector else None
    if not resource.custom:
        label_selector = dig(obj, "spec", "selector") or {}
        selector = selector_text(label_selector if resource.group else {"matchLabels": label_selector})
    metadata_fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": dig(obj, *paths.status_replicas) or 0}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in metadata_fields if key in obj["metadata"]},
        "spec": {"replicas": dig(obj, *paths.replicas) or 0},
        "status": {**status, "selector": selector} if selector else status,
    }


def scaled(store: Store, resource: Resource, obj: View, scale: View, write: Write) -> View:
    """Set the replicas that `scale` asks for and return the object.

    Raises ApiError 409 for an outdated resourceVersion, 422 for a negative number.
    """
    replicas = dig(scale, "spec", "replicas") or 0
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request(f"Scale: spec.replicas must be a whole number, found {replicas!r}")
    if replicas < 0:
        problem = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("Scale.autoscaling", name_of(obj), [problem])
    paths = resource.scale
    new = replaced(obj, paths.replicas if paths else (), replicas)
    version = dig(scale, "metadata", "resourceVersion")
    if version:
        new = replaced(new, ("metadata", "resourceVersion"), version)
    return store.update(resource, new, write=write)


def bound(store: Store, pod_name: str, namespace: str, binding: View, write: Write) -> None:
    """Bind a pod to the node that `binding` targets. Raises ApiError 404, 409 or 500."""
    node = dig(binding, "target", "name")
    if not node:
        raise internal("target.name: Required value")
    with store.history.lock:
        revision = store.revision(store.resource("pods"), pod_name, namespace)
        pod = revision.object
        current_node = dig(pod, "spec", "nodeName")
        if "deletionTimestamp" in pod["metadata"]:
            raise conflict(
                "pods/binding", pod_name, f"pod {pod_name} is being deleted, cannot be assigned to a host"
            )
        if current_node:
            raise conflict(
                "pods/binding", pod_name, f'pod {pod_name} is already assigned to node "{current_node}"'
            )
        if dig(pod, "spec", "schedulingGates"):
            raise conflict("pods/binding", pod_name, f"pod {pod_name} has non-empty .spec.schedulingGates")
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        scheduled["lastTransitionTime"] = timestamp(store.now())
        new = replaced(
            replaced(pod, ("spec", "nodeName"), node), ("status", "conditions"), _with(pod, scheduled)
        )
        store.replace(store.resource("pods"), revision, new, "binding", write)


def evicted(store: Store, pod_name: str, namespace: str, eviction: View, write: Write) -> None:
    """Evict a pod if its disruption budget allows. Raises ApiError 404, 429, or 500 if it has two budgets."""
    options = delete_options(eviction.get("deleteOptions") or {}, dry_run=write.dry_run)
    with store.history.lock:
        pod = store.get("pods", pod_name, namespace)
        if _counts(pod):
            _spend_budget(store, pod, write)
        check_preconditions(store.resource("pods"), pod, options)
        if write.dry_run:
            return
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        target |= {"message": "Eviction API: evicting", "lastTransitionTime": timestamp(store.now())}
        patch = {"status": {"conditions": _with(pod, target)}}
        store.patch("pods", pod_name, patch, namespace, subresource="status")
        store.delete("pods", pod_name, namespace, replace(options, uid="", resource_version=""))


def delete_options(body: Mapping[str, Any], *, dry_run: bool = False) -> DeleteOptions:
    """Parse a metav1.DeleteOptions. Raises ApiError 400 or 422."""
    policy = body.get("propagationPolicy") or ("Orphan" if body.get("orphanDependents") else "Background")
    propagation = _PROPAGATIONS.get(policy)
    if propagation is None:
        problem = unsupported("propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil"))
        raise invalid("DeleteOptions.meta.k8s.io", "", [problem])
    grace = body.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int) or grace < 0):
        raise bad_request(f"DeleteOptions: gracePeriodSeconds {grace!r} must be a whole number, 0 or more")
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        grace_seconds=grace,
        propagation=propagation,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=dry_run or bool(body.get("dryRun")),
    )


def _counts(pod: View) -> bool:
    """Return whether a budget applies: pods that do not run yet, or no longer, may always be evicted."""
    ended = dig(pod, "status", "phase") in ("Pending", "Succeeded", "Failed")
    return not ended and "deletionTimestamp" not in pod["metadata"]


def _spend_budget(store: Store, pod: View, write: Write) -> None:
    namespace, labels = namespace_of(pod), labels_of(pod)
    budgets = [
        candidate
        for candidate in store.list("poddisruptionbudgets", namespace)
        if selector_matcher(dig(candidate, "spec", "selector") or {})(labels)
    ]
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise ApiError(500, "InternalError", message)
    if not budgets or (not is_true(pod, "Ready") and _frees_unhealthy(budgets[0])):
        return
    budget, status = budgets[0], budgets[0].get("status") or {}
    allowed = status.get("disruptionsAllowed") or 0
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _violates(
            f"The disruption budget {name_of(budget)} is still being processed by the server.",
            retryAfterSeconds=10,
        )
    if len(status.get("disruptedPods") or ()) > _MOST_DISRUPTED:
        reason = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("poddisruptionbudget.policy", name_of(budget), reason)
    if allowed <= 0:
        raise _violates(f"The disruption budget {name_of(budget)} {_why_none(budget)}")
    if not write.dry_run:
        disrupted = {**(status.get("disruptedPods") or {}), name_of(pod): timestamp(store.now())}
        spent = {"status": {"disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}}
        store.patch("poddisruptionbudgets", name_of(budget), spent, namespace, subresource="status")


def _why_none(budget: View) -> str:
    """Return the reason why a budget allows no eviction.

    The status's numbers are meaningless if the controller failed to count the pods.
    """
    current, desired = (dig(budget, "status", field) or 0 for field in ("currentHealthy", "desiredHealthy"))
    condition = condition_of(budget, "DisruptionAllowed") or {}
    sync_error = condition.get("status") == "False" and condition.get("message")
    reason = condition.get("reason", "")
    if sync_error and reason == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {sync_error}"
    if current <= desired:
        return f"needs {desired} healthy pods and has {current} currently"
    return f"does not allow evicting pods currently{f' ({reason}): {sync_error}' if sync_error else ''}"


def _frees_unhealthy(budget: View) -> bool:
    if dig(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    current, desired = (dig(budget, "status", field) or 0 for field in ("currentHealthy", "desiredHealthy"))
    return bool(desired > 0 and current >= desired)


def _violates(reason: str, **details: int) -> ApiError:
    """Return the refusal of an eviction.

    Clients retry on their own after a `retryAfterSeconds`, so only some refusals carry one.
    """
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    cause = {"reason": "DisruptionBudget", "message": reason}
    return ApiError(429, "TooManyRequests", message, {"causes": [cause], **details})


def _with(pod: View, condition: Object) -> list[Any]:
    conditions = dig(pod, "status", "conditions") or ()
    return [*(existing for existing in conditions if existing.get("type") != condition["type"]), condition]
