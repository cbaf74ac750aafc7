"""The checks on pod specs that users of an autoscaler are likely to meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodesmith.model.apimachinery.quantities import parse_quantity
from nodesmith_formats.kubernetes.errors import FieldProblem, duplicate, invalid_value, required, unsupported
from nodesmith_formats.kubernetes.names import label_problems
from nodesmith_formats.kubernetes.objects import View
from nodesmith_formats.kubernetes.selectorchecks import affinity_problems, label_selector_problems

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESTARTS = ("Always", "OnFailure", "Never")
_SPREADS = ("DoNotSchedule", "ScheduleAnyway")


def pod_spec_problems(spec: View | None, path: str) -> Iterator[FieldProblem]:
    """Check a decoded pod spec."""
    if not spec or not spec.get("containers"):
        yield required(f"{path}.containers")
        return
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            container_path = f"{path}.{field}[{index}]"
            yield from _container(container, container_path)
            if container.get("name") in names:
                yield duplicate(f"{container_path}.name", container["name"])
            names.add(container.get("name", ""))
    if spec.get("restartPolicy") not in (None, *_RESTARTS):
        yield unsupported(f"{path}.restartPolicy", spec["restartPolicy"], _RESTARTS)
    yield from affinity_problems(spec.get("affinity"), f"{path}.affinity")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")
    for index, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread(spread, f"{path}.topologySpreadConstraints[{index}]")


def _container(container: View, path: str) -> Iterator[FieldProblem]:
    name = container.get("name")
    if name:
        yield from label_problems(name, f"{path}.name")
    else:
        yield required(f"{path}.name")
    if not container.get("image"):
        yield required(f"{path}.image")
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for key, value in amounts.items():
            if parse_quantity(value) < 0:
                amount_path = f"{path}.resources.{kind}[{key}]"
                yield invalid_value(amount_path, value, "must be greater than or equal to 0")
    for key in requests.keys() & limits.keys():
        if parse_quantity(requests[key]) > parse_quantity(limits[key]):
            detail = f"must be less than or equal to {key} limit of {limits[key]}"
            yield invalid_value(f"{path}.resources.requests", requests[key], detail)


def _toleration(toleration: View, path: str) -> Iterator[FieldProblem]:
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect", "")
    if operator not in ("Equal", "Exists", "Gt", "Lt"):
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists", "Gt", "Lt"))
    if operator == "Exists" and toleration.get("value"):
        yield invalid_value(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    if operator != "Exists" and not toleration.get("key"):
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid_value(f"{path}.operator", operator, detail)
    if effect and effect not in EFFECTS:
        yield unsupported(f"{path}.effect", effect, EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid_value(f"{path}.effect", effect, detail)


def _spread(spread: View, path: str) -> Iterator[FieldProblem]:
    skew: Any = spread.get("maxSkew", 0)
    if skew <= 0:
        yield invalid_value(f"{path}.maxSkew", skew, "must be greater than zero")
    if not spread.get("topologyKey"):
        yield required(f"{path}.topologyKey", "can not be empty")
    if spread.get("whenUnsatisfiable") not in _SPREADS:
        yield unsupported(f"{path}.whenUnsatisfiable", spread.get("whenUnsatisfiable", ""), _SPREADS)
    yield from label_selector_problems(spread.get("labelSelector"), f"{path}.labelSelector")
