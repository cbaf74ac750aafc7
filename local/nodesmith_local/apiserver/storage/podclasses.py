"""The effect of the admission plugins LimitRanger and RuntimeClass on a new pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith.observation.reduction.podspecs import (
    reduce_limit_range,
    reduce_runtime_class,
    with_default_requests,
    with_runtime_class,
)
from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.kubernetes.objects import Object, View, name_of


def completed(pod: Object, limit_ranges: Iterable[View], runtimes: Mapping[str, View]) -> Object:
    """Return a pod with its namespace's default requests and its RuntimeClass's additions.

    Default limits, minima and maxima are not imitated. Raises ApiError 403 for a class that does not exist.
    """
    spec: Object = dict(pod["spec"])
    for each in map(reduce_limit_range, limit_ranges):
        if each["metadata"]["namespace"] == pod["metadata"].get("namespace"):
            spec = with_default_requests(spec, each["requests"])
    name: Any = spec.get("runtimeClassName")
    if name and name not in runtimes:
        message = f'pods "{name_of(pod)}" is forbidden: pod rejected: RuntimeClass "{name}" not found'
        raise ApiError(403, "Forbidden", message, {"name": name_of(pod), "kind": "pods"})
    if name:
        spec = with_runtime_class(spec, reduce_runtime_class(runtimes[name])["spec"])
    return {**pod, "spec": spec}
