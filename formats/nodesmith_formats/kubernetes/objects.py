"""Kubernetes objects as plain JSON data, and common operations on them.

Objects inside the store are shared and never changed in place; to change one, build a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
View: TypeAlias = Mapping[str, Any]  # an object that the reader must not change
Clock: TypeAlias = Callable[[], datetime]


def clone(value: Any) -> Any:
    """Return a deep copy of JSON data (three times as fast as copy.deepcopy, which allows for cycles)."""
    if type(value) is dict:
        return {key: clone(item) for key, item in value.items()}
    if type(value) is list:
        return [clone(item) for item in value]
    return value


def dig(value: Any, *path: str | int) -> Any:
    """Return the value at `path` in nested objects and lists, or None where a step is missing."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return None
    return value


def replaced(value: View, path: Iterable[str], leaf: Any) -> Object:
    """Return `value` with `leaf` at `path`; the result shares everything else with the original."""
    step, *inner_path = path
    inner = value.get(step) if inner_path else None
    new = replaced(inner if isinstance(inner, Mapping) else {}, inner_path, leaf) if inner_path else leaf
    return {**value, step: new}


def timestamp(moment: datetime) -> str:
    """Format an aware datetime as metav1.Time: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(moment: datetime) -> str:
    """Format an aware datetime as metav1.MicroTime, the format of leases."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: object) -> datetime | None:
    """Parse a Time or MicroTime; return None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def name_of(obj: View) -> str:
    """Return metadata.name, or "" where there is none."""
    return str(dig(obj, "metadata", "name") or "")


def namespace_of(obj: View) -> str:
    """Return metadata.namespace, or "" for a cluster-scoped object."""
    return str(dig(obj, "metadata", "namespace") or "")


def pod_key(pod: View) -> str:
    """Return a pod's `namespace/name`. A manifest without a namespace belongs to the namespace `default`."""
    return f"{namespace_of(pod) or 'default'}/{name_of(pod)}"


def labels_of(obj: View) -> Mapping[str, str]:
    """Return metadata.labels, or an empty mapping where there are none."""
    return dig(obj, "metadata", "labels") or {}


def controller_of(obj: View) -> View | None:
    """Return the owner reference with `controller: true`, or None."""
    owners = dig(obj, "metadata", "ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def condition_of(obj: View, kind: str) -> View | None:
    """Return the entry of status.conditions with this type, or None."""
    conditions = dig(obj, "status", "conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def is_true(obj: View, kind: str) -> bool:
    """Return whether the condition `kind` exists and is True."""
    condition = condition_of(obj, kind)
    return condition is not None and condition.get("status") == "True"
