"""Creation of objects: name, identity, namespace, and the fields that the server adds only once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from nodesmith.observation.reduction.podspecs import (
    reduce_limit_range,
    reduce_runtime_class,
    with_default_requests,
    with_runtime_class,
)
from nodesmith_formats.kubernetes import defaults, pods
from nodesmith_formats.kubernetes.errors import (
    ApiError,
    FieldProblem,
    bad_request,
    internal,
    invalid,
    not_found,
)
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Clock, Object, View, name_of, timestamp
from nodesmith_local.apiserver.storage import crds
from nodesmith_local.apiserver.storage.deletion import CRD_CLEANUP
from nodesmith_local.apiserver.storage.drafts import KEPT, Write, completed
from nodesmith_local.apiserver.storage.history import History

_SUFFIX = (
    # The API server's own alphabet for generated names: no vowels, no characters that look alike.
    "bcdfghjklmnpqrstvwxz2456789"
)
_PRIORITIES = "priorityclasses.scheduling.k8s.io"
_RUNTIMES = "runtimeclasses.node.k8s.io"


def created_object(history: History, served: Resource, obj: Object, write: Write, now: Clock) -> Object:
    """Return the object as it is first stored. Raises ApiError 400, 403, 404 (namespace) or 422."""
    obj["metadata"] = _identity(history, served, obj, now)
    if served.status and served.kind != "Node":  # A kubelet creates its node with a status.
        obj.pop("status", None)
        if not served.custom:
            obj["status"] = {}
    obj = completed(served, obj, write, now)
    if served.custom:
        return obj
    if served.name == "pods" and obj.get("spec"):
        classes = {name_of(revision.object): revision.object for revision in history.scan(_PRIORITIES)}
        ranges = [revision.object for revision in history.scan("limitranges")]
        runtimes = {name_of(revision.object): revision.object for revision in history.scan(_RUNTIMES)}
        return pods.admitted(_admitted(obj, ranges, runtimes), classes)
    return defaults.at_birth(served.kind, obj)


def _admitted(pod: Object, limit_ranges: Iterable[View], runtimes: Mapping[str, View]) -> Object:
    """Return a pod with the additions of the admission plugins LimitRanger and RuntimeClass.

    Default limits, minima and maxima are not imitated. Raises ApiError 403 for a class that does not exist.
    """
    spec: Object = dict(pod["spec"])
    for limit_range in map(reduce_limit_range, limit_ranges):
        if limit_range["metadata"]["namespace"] == pod["metadata"].get("namespace"):
            spec = with_default_requests(spec, limit_range["requests"])
    name: Any = spec.get("runtimeClassName")
    if name and name not in runtimes:
        message = f'pods "{name_of(pod)}" is forbidden: pod rejected: RuntimeClass "{name}" not found'
        raise ApiError(403, "Forbidden", message, {"name": name_of(pod), "kind": "pods"})
    if name:
        spec = with_runtime_class(spec, reduce_runtime_class(runtimes[name])["spec"])
    return {**pod, "spec": spec}


def _identity(history: History, served: Resource, obj: View, now: Clock) -> Object:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise bad_request(f"{served.kind}: metadata is missing or not an object; give it at least a name")
    if metadata.get("resourceVersion"):
        raise internal("resourceVersion should not be set on objects to be created")
    server_fields: Object = {key: value for key, value in metadata.items() if key not in (*KEPT, "namespace")}
    if served.namespaced:
        server_fields["namespace"] = metadata.get("namespace") or "default"
        _check_namespace(history, served, server_fields)
    server_fields["name"] = metadata.get("name") or _generated(history, served, server_fields)
    server_fields |= {"uid": str(uuid4()), "creationTimestamp": timestamp(now())}
    if served.generation:
        server_fields["generation"] = 1
    if served.name == crds.PLURAL:
        server_fields["finalizers"] = [*(server_fields.get("finalizers") or ()), CRD_CLEANUP]
    return server_fields


def _check_namespace(history: History, served: Resource, metadata: View) -> None:
    namespace_name = metadata["namespace"]
    namespace = history.find("namespaces", ("", namespace_name))
    if namespace is None:
        raise not_found("namespaces", namespace_name)
    if "deletionTimestamp" in namespace.object["metadata"]:
        reason = f"unable to create new content in namespace {namespace_name} because it is being terminated"
        name = metadata.get("name", "")
        raise ApiError(403, "Forbidden", f'{served.name} "{name}" is forbidden: {reason}')


def _generated(history: History, served: Resource, metadata: View) -> str:
    prefix = metadata.get("generateName")
    if not prefix:
        message_text = "Required value: name or generateName is required"
        raise invalid(
            served.qualified_kind, "", [FieldProblem("metadata.name", "FieldValueRequired", message_text)]
        )
    while True:
        name = str(prefix)[:58] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
        if not history.find(served.name, (metadata.get("namespace") or "", name)):
            return name
