"""Checks of built-in kinds, with a real server's messages.

The objects have been decoded, so their types are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith_formats.kubernetes.errors import (
    FieldProblem,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.names import (
    key_problems,
    label_map_problems,
    label_problems,
    subdomain_problems,
)
from nodesmith_formats.kubernetes.objects import Object, View, dig, labels_of, name_of
from nodesmith_formats.kubernetes.podchecks import EFFECTS, pod_spec_problems
from nodesmith_formats.kubernetes.selectorchecks import label_selector_problems
from nodesmith_formats.kubernetes.selectors import selector_matcher

_TEMPLATED = {
    "Deployment": ("Always",),
    "ReplicaSet": ("Always",),
    "StatefulSet": ("Always",),
    "DaemonSet": ("Always",),
    "Job": ("OnFailure", "Never"),
}
_POD_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_INT32 = 2**31 - 1
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def problems_of(resource: Resource, obj: View) -> Iterator[FieldProblem]:
    """Yield the problems of a new or changed object."""
    yield from _metadata(resource, obj)
    if resource.custom and resource.scale:
        yield from _replicas(obj, resource.scale.replicas)
    match resource.kind if not resource.custom else "":
        case "Pod":
            yield from pod_spec_problems(obj.get("spec"), "spec")
        case "Node":
            yield from _taints(dig(obj, "spec", "taints") or (), "spec.taints")
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" as kind:
            yield from _workload(kind, obj)
        case "PodDisruptionBudget":
            spec = obj.get("spec") or {}
            if "minAvailable" in spec and "maxUnavailable" in spec:
                yield invalid_value("spec", dict(spec), "minAvailable and maxUnavailable cannot be both set")
            yield from label_selector_problems(spec.get("selector"), "spec.selector")
        case _:
            return


def _replicas(obj: View, steps: Sequence[str]) -> Iterator[FieldProblem]:
    """Check the number that the scale subresource reads; it is an int32 whatever the schema allows."""
    path, value = f".{'.'.join(steps)}", dig(obj, *steps)
    holder = dig(obj, *steps[:-1])
    wrong, expected = (value, "int64") if isinstance(holder, dict) else (holder, "map[string]interface{}")
    if isinstance(wrong, str):
        yield invalid_value(
            path, 0, f"{path} accessor error: {wrong} is of the type string, expected {expected}"
        )
    elif isinstance(value, int) and value < 0:
        yield invalid_value(path, value, "should be a non-negative integer")
    elif isinstance(value, int) and value > _INT32:
        yield invalid_value(path, value, f"should be less than or equal to {_INT32}")


def change_problems(resource: Resource, old: View, new: View) -> Iterator[FieldProblem]:
    """Yield the changes that an update must not make."""
    if resource.custom:
        return
    if resource.kind == "Pod" and _frozen_part(old) != _frozen_part(new):
        yield forbidden_field("spec", _POD_RULE)
    if resource.kind == "Node":
        before, after = dig(old, "spec", "providerID"), dig(new, "spec", "providerID")
        if before and before != after:
            detail = 'node updates may not change providerID except from "" to valid'
            yield forbidden_field("spec.providerID", detail)
    if resource.kind in _TEMPLATED:
        before, after = dig(old, "spec", "selector"), dig(new, "spec", "selector")
        if before is not None and before != after:
            yield invalid_value("spec.selector", after, "field is immutable")
    if resource.kind == "Job" and dig(old, "spec", "template") != dig(new, "spec", "template"):
        yield invalid_value("spec.template", dig(new, "spec", "template"), "field is immutable")


def _metadata(resource: Resource, obj: View) -> Iterator[FieldProblem]:
    name = name_of(obj)
    if not resource.custom and resource.plural in ("namespaces", "services"):
        yield from label_problems(name, "metadata.name")
    elif resource.group != "rbac.authorization.k8s.io":  # RBAC allows any name
        yield from subdomain_problems(name, "metadata.name")
    yield from label_map_problems(labels_of(obj), "metadata.labels")
    for key in dig(obj, "metadata", "annotations") or ():
        yield from key_problems(key.lower(), "metadata.annotations")


def _workload(kind: str, obj: View) -> Iterator[FieldProblem]:
    spec = obj.get("spec")
    if spec is None:
        yield required("spec")
        return
    for field in ("replicas", "parallelism", "completions"):
        if spec.get(field, 0) < 0:
            yield invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    labels = dig(spec, "template", "metadata", "labels") or {}
    if kind != "Job" and spec.get("selector") is None:
        yield required("spec.selector")
    elif problems := list(label_selector_problems(spec.get("selector"), "spec.selector")):
        yield from problems
    elif kind != "Job" and not selector_matcher(spec["selector"])(labels):
        detail = "`selector` does not match template `labels`"
        yield invalid_value("spec.template.metadata.labels", labels, detail)
    yield from label_map_problems(labels, "spec.template.metadata.labels")
    pod_spec = dig(spec, "template", "spec")
    yield from pod_spec_problems(pod_spec, "spec.template.spec")
    policy, allowed = dig(pod_spec, "restartPolicy"), _TEMPLATED[kind]
    if policy is not None and policy not in allowed:
        yield unsupported("spec.template.spec.restartPolicy", policy, allowed)


def _taints(taints: Sequence[View], path: str) -> Iterator[FieldProblem]:
    identities: set[tuple[object, object]] = set()
    for index, taint in enumerate(taints):
        if not taint.get("key"):
            yield required(f"{path}[{index}].key")
        if taint.get("effect") not in EFFECTS:
            yield unsupported(f"{path}[{index}].effect", taint.get("effect", ""), EFFECTS)
        identity = (taint.get("key"), taint.get("effect"))
        if identity in identities:
            yield duplicate(f"{path}[{index}]", dict(taint))
        identities.add(identity)


def _frozen_part(pod: View) -> Object:
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in _CHANGEABLE}
    if dig(pod, "spec", "schedulingGates"):
        spec.pop("nodeSelector", None)  # the placement of a gated pod may still be narrowed
        spec.pop("affinity", None)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [{**container, "image": ""} for container in spec[field]]
    return spec
