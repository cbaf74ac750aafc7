"""Defaults and admission changes that a real server makes to pods and pod templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.kubernetes.objects import Object, View, dig, name_of

EVICTED_AFTER_SECONDS = 300
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
}


def with_spec_defaults(spec: View) -> Object:
    """Return a pod spec, of a pod or a template, with defaults."""
    filled: Object = {**_SPEC, **spec}
    for field in ("initContainers", "containers"):
        if isinstance(spec.get(field), list):
            filled[field] = [_container(container) for container in spec[field]]
    return filled


def with_template_defaults(workload: Object, *path: str) -> Object:
    """Return a workload with defaults in its pod template at `path`, such as spec.template."""
    step, *inner_path = path
    inner = workload.get(step)
    if not isinstance(inner, Mapping):
        return workload
    if inner_path:
        return {**workload, step: with_template_defaults(dict(inner), *inner_path)}
    spec = inner.get("spec")
    if not isinstance(spec, Mapping):
        return workload
    return {**workload, step: {"metadata": {}, **inner, "spec": with_spec_defaults(spec)}}


def with_pod_defaults(pod: Object) -> Object:
    """Return a pod with defaults in its spec. Limits become requests here, for pods but not for templates."""
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return pod
    filled = with_spec_defaults(spec)
    filled.setdefault("enableServiceLinks", True)
    for field in ("initContainers", "containers"):
        if isinstance(filled.get(field), list):
            filled[field] = [_with_requests(container) for container in filled[field]]
            if filled.get("hostNetwork"):
                filled[field] = [_with_host_ports(container) for container in filled[field]]
    return {**pod, "spec": filled}


def admitted(pod: Object, classes: Mapping[str, View]) -> Object:
    """Return a new pod as the admission plugins leave it: priority, tolerations, service account, status.

    `classes` maps names to PriorityClasses. Raises ApiError 403 for a class that does not exist.
    """
    spec: Object = dict(pod["spec"])
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.update(_priority(spec, classes, name_of(pod)))
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    status = {"phase": "Pending", "qosClass": qos_class(spec)}
    return {**pod, "spec": spec, "status": status}


def qos_class(spec: View) -> str:
    """Return Guaranteed, Burstable or BestEffort, from the CPU and memory of all containers."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    resources = [requirements.get("resources") or {} for requirements in containers]
    if isinstance(spec.get("resources"), Mapping) and spec["resources"]:
        resources = [spec["resources"]]
    if not any(_core(requirements, kind) for requirements in resources for kind in ("requests", "limits")):
        return "BestEffort"
    for requirements in resources:
        limits = _core(requirements, "limits")
        if len(limits) < 2 or {**limits, **_core(requirements, "requests")} != limits:
            return "Burstable"
    return "Guaranteed"


def _core(resources: View, kind: str) -> dict[str, Any]:
    amounts = resources.get(kind) or {}
    return {name: str(amounts[name]) for name in ("cpu", "memory") if str(amounts.get(name, "0")) != "0"}


def _container(container: Any) -> Any:
    if not isinstance(container, Mapping):
        return container
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    pinned = "@" in image or tag not in ("", "latest")
    filled: Object = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent" if pinned else "Always",
        "resources": {},
        **container,
    }
    if isinstance(container.get("ports"), list):
        filled["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    return filled


def _with_requests(container: Any) -> Any:
    limits = dig(container, "resources", "limits")
    if not limits:
        return container
    resources = container["resources"]
    return {
        **container,
        "resources": {**resources, "requests": {**limits, **(resources.get("requests") or {})}},
    }


def _with_host_ports(container: Any) -> Any:
    ports = container.get("ports")
    if not ports:
        return container
    return {**container, "ports": [{"hostPort": port.get("containerPort"), **port} for port in ports]}


def _priority(spec: View, classes: Mapping[str, View], pod: str) -> Object:
    name = spec.get("priorityClassName")
    if not name:
        default = next(
            (priority_class for priority_class in classes.values() if priority_class.get("globalDefault")),
            None,
        )
        if default is None:
            return {"priority": 0, "preemptionPolicy": spec.get("preemptionPolicy", "PreemptLowerPriority")}
        name = name_of(default)
    if name not in classes:
        message = f'pods "{pod}" is forbidden: no PriorityClass with name {name} was found'
        raise ApiError(403, "Forbidden", message, {"name": pod, "kind": "pods"})
    selected = classes[name]
    policy = selected.get("preemptionPolicy", "PreemptLowerPriority")
    return {"priorityClassName": name, "priority": selected.get("value", 0), "preemptionPolicy": policy}


def _tolerations(tolerations: list[Any]) -> list[Any]:
    """Return the tolerations with the two five-minute NoExecute ones, unless the pod tolerates those taints itself."""
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    eviction = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": EVICTED_AFTER_SECONDS}
    return [
        *tolerations,
        *(
            {"key": key, **eviction}
            for key in keys
            if not any(_covers(toleration, key) for toleration in tolerations)
        ),
    ]


def _covers(toleration: View, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")
