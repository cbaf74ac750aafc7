"""The checks on built-in kinds that a user of an autoscaler runs into, in a real server's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodesmith.model.quantities import QuantityError, parse_quantity
from nodesmith_cli.local.apiserver.errors import (
    ApiError,
    FieldProblem,
    bad_request,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)
from nodesmith_cli.local.apiserver.kinds import Resource
from nodesmith_cli.local.apiserver.objects import Object, View, dig, name_of
from nodesmith_cli.local.apiserver.selectors import selector_matcher

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_QUALIFIED})?"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LABEL_NAMED = frozenset({"namespaces", "services"})
_FREELY_NAMED = frozenset({"clusterroles", "clusterrolebindings", "roles", "rolebindings"})
_TEMPLATED = {
    "Deployment": ("Always",),
    "ReplicaSet": ("Always",),
    "StatefulSet": ("Always",),
    "DaemonSet": ("Always",),
    "Job": ("OnFailure", "Never"),
}


def problems_of(resource: Resource, obj: View) -> Iterator[FieldProblem]:
    """Yield what is wrong with a new or changed object. Raises ApiError 400 for what cannot be decoded."""
    yield from _metadata(resource, obj)
    match resource.kind if not resource.custom else "":
        case "Pod":
            yield from _pod_spec(obj.get("spec"), "spec", resource)
        case "Node":
            yield from _taints(dig(obj, "spec", "taints") or (), "spec.taints")
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" as kind:
            yield from _workload(kind, obj, resource)
        case "PodDisruptionBudget":
            spec = obj.get("spec") or {}
            if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
                yield invalid_value("spec", dict(spec), "minAvailable and maxUnavailable cannot be both set")
        case _:
            return


def change_problems(resource: Resource, old: View, new: View) -> Iterator[FieldProblem]:
    """Yield what an update changes although it may not."""
    if resource.custom:
        return
    if resource.kind == "Pod" and _frozen_part(old) != _frozen_part(new):
        yield forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
            "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )
    if resource.kind == "Node":
        before, after = dig(old, "spec", "providerID"), dig(new, "spec", "providerID")
        if before and before != after:
            yield forbidden_field(
                "spec.providerID", 'node updates may not change providerID except from "" to valid'
            )
    if resource.kind in _TEMPLATED:
        before, after = dig(old, "spec", "selector"), dig(new, "spec", "selector")
        if before is not None and before != after:
            yield invalid_value("spec.selector", after, "field is immutable")
    if resource.kind == "Job" and dig(old, "spec", "template") != dig(new, "spec", "template"):
        yield invalid_value("spec.template", "…", "field is immutable")


def _metadata(resource: Resource, obj: View) -> Iterator[FieldProblem]:
    name = name_of(obj)
    label = resource.plural in _LABEL_NAMED and not resource.custom
    pattern, rule, most = (_LABEL, _LABEL_RULE, 63) if label else (_SUBDOMAIN, _SUBDOMAIN_RULE, 253)
    free = resource.plural in _FREELY_NAMED and not resource.custom
    if not free and not re.fullmatch(pattern, name):
        yield invalid_value("metadata.name", name, rule)
    elif len(name) > most:
        yield invalid_value("metadata.name", name, f"must be no more than {most} characters")
    yield from _labels(dig(obj, "metadata", "labels"), "metadata.labels")
    for key in dig(obj, "metadata", "annotations") or ():
        yield from _qualified(key.lower(), "metadata.annotations", key)


def _labels(labels: object, path: str) -> Iterator[FieldProblem]:
    if labels is None:
        return
    if not isinstance(labels, Mapping):
        raise bad_request(f"{path} must be a map of strings, found {type(labels).__name__}")
    for key, value in labels.items():
        yield from _qualified(key, path, key)
        if not isinstance(value, str):
            raise bad_request(
                f"{path}[{key}]: cannot unmarshal {_json_type(value)} into a value of type string"
            )
        if len(value) > 63:
            yield invalid_value(path, value, "must be no more than 63 bytes")
        elif not re.fullmatch(_LABEL_VALUE, value):
            yield invalid_value(path, value, _VALUE_RULE)


def _qualified(key: str, path: str, shown: str) -> Iterator[FieldProblem]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield invalid_value(path, shown, f"prefix part {_SUBDOMAIN_RULE}")
    if not re.fullmatch(_QUALIFIED, name):
        yield invalid_value(path, shown, _KEY_RULE)
    elif len(name) > 63:
        yield invalid_value(path, shown, "name part must be no more than 63 bytes")


def _workload(kind: str, obj: View, resource: Resource) -> Iterator[FieldProblem]:
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        yield required("spec")
        return
    replicas = spec.get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise _undecodable(
            resource, f"cannot unmarshal {_json_type(replicas)} into field spec.replicas of type int32"
        )
    if replicas < 0:
        yield invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    labels = dig(spec, "template", "metadata", "labels") or {}
    if kind != "Job":
        if not isinstance(spec.get("selector"), Mapping):
            yield required("spec.selector")
        elif not selector_matcher(spec["selector"])(labels):
            yield invalid_value(
                "spec.template.metadata.labels", labels, "`selector` does not match template `labels`"
            )
    yield from _labels(labels, "spec.template.metadata.labels")
    pod_spec = dig(spec, "template", "spec")
    yield from _pod_spec(pod_spec, "spec.template.spec", resource)
    policy, allowed = dig(pod_spec, "restartPolicy"), _TEMPLATED[kind]
    if policy is not None and policy not in allowed:
        yield unsupported("spec.template.spec.restartPolicy", policy, allowed)


def _pod_spec(spec: object, path: str, resource: Resource) -> Iterator[FieldProblem]:
    if not isinstance(spec, Mapping) or not spec.get("containers"):
        yield required(f"{path}.containers")
        return
    if spec.get("restartPolicy") not in (None, "Always", "OnFailure", "Never"):
        yield unsupported(f"{path}.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never"))
    for field in ("initContainers", "containers"):
        containers = spec.get(field) or []
        if not isinstance(containers, list):
            raise _undecodable(
                resource,
                f"cannot unmarshal {_json_type(containers)} into field {path}.{field} of type []Container",
            )
        names = [each.get("name") for each in containers if isinstance(each, Mapping)]
        for at, container in enumerate(containers):
            where = f"{path}.{field}[{at}]"
            if not isinstance(container, Mapping):
                raise _undecodable(resource, f"{where} must be an object")
            yield from _container(container, where, resource)
            if names.index(container.get("name")) != at:
                yield duplicate(f"{where}.name", container.get("name"))
    for at, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{at}]")
    for at, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread(spread, f"{path}.topologySpreadConstraints[{at}]")


def _container(container: View, path: str, resource: Resource) -> Iterator[FieldProblem]:
    name = container.get("name")
    if not name:
        yield required(f"{path}.name")
    elif not re.fullmatch(_LABEL, str(name)):
        yield invalid_value(f"{path}.name", name, _LABEL_RULE)
    if not container.get("image"):
        yield required(f"{path}.image")
    resources = container.get("resources") or {}
    amounts = {
        word: _amounts(resources.get(word), f"{path}.resources.{word}", resource)
        for word in ("limits", "requests")
    }
    for word, values in amounts.items():
        for key, value in values.items():
            if value < 0:
                shown = str(resources[word][key])
                yield invalid_value(
                    f"{path}.resources.{word}[{key}]", shown, "must be greater than or equal to 0"
                )
    for key, wanted in amounts["requests"].items():
        limit = amounts["limits"].get(key)
        if limit is not None and wanted > limit:
            detail = f"must be less than or equal to {key} limit of {resources['limits'][key]}"
            yield invalid_value(f"{path}.resources.requests", str(resources["requests"][key]), detail)


def _amounts(given: object, path: str, resource: Resource) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _undecodable(
            resource, f"cannot unmarshal {_json_type(given)} into field {path} of type ResourceList"
        )
    try:
        return {key: parse_quantity(str(value)) for key, value in given.items()}
    except QuantityError as error:
        raise _undecodable(resource, f"{QUANTITY_RULE} ({path}: {error})") from error


def _toleration(toleration: View, path: str) -> Iterator[FieldProblem]:
    operator, effect = toleration.get("operator", "Equal"), toleration.get("effect", "")
    if operator not in ("Equal", "Exists", "Gt", "Lt", ""):
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if operator == "Exists" and toleration.get("value"):
        yield invalid_value(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    if not toleration.get("key") and operator != "Exists":
        yield invalid_value(f"{path}.operator", operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")  # fmt: skip
    if effect and effect not in _EFFECTS:
        yield unsupported(f"{path}.effect", effect, _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield invalid_value(
            f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"
        )


def _spread(spread: View, path: str) -> Iterator[FieldProblem]:
    skew = spread.get("maxSkew")
    if not isinstance(skew, int) or skew <= 0:
        yield invalid_value(f"{path}.maxSkew", skew or 0, "must be greater than zero")
    if not spread.get("topologyKey"):
        yield required(f"{path}.topologyKey", "can not be empty")
    if spread.get("whenUnsatisfiable") not in ("DoNotSchedule", "ScheduleAnyway"):
        yield unsupported(
            f"{path}.whenUnsatisfiable",
            spread.get("whenUnsatisfiable", ""),
            ("DoNotSchedule", "ScheduleAnyway"),
        )


def _taints(taints: Sequence[View], path: str) -> Iterator[FieldProblem]:
    seen: set[tuple[object, object]] = set()
    for at, taint in enumerate(taints):
        if not taint.get("key"):
            yield required(f"{path}[{at}].key")
        if taint.get("effect") not in _EFFECTS:
            yield unsupported(f"{path}[{at}].effect", taint.get("effect", ""), _EFFECTS)
        mark = (taint.get("key"), taint.get("effect"))
        if mark in seen:
            yield duplicate(f"{path}[{at}]", dict(taint))
        seen.add(mark)


def _frozen_part(pod: View) -> Object:
    spec = {**(pod.get("spec") or {})}
    for field in (
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "schedulingGates",
        "nodeName",
    ):
        spec.pop(field, None)
    if dig(pod, "spec", "schedulingGates"):
        spec.pop("nodeSelector", None)  # a gated pod's placement may still be narrowed
        spec.pop("affinity", None)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [{**each, "image": ""} for each in spec[field]]
    return spec


def _undecodable(resource: Resource, why: str) -> ApiError:
    version = resource.api_version().rpartition("/")[2]
    return bad_request(
        f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: {why}'
    )


def _json_type(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case None:
            return "null"
        case _:
            return "object"
