"""The target of a request: the resource, namespace, name and subresource that its path names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodesmith_formats.kubernetes.errors import bad_request, no_such_path
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Clock, Object
from nodesmith_local.apiserver.requests.messages import Request
from nodesmith_local.apiserver.storage.registry import Registry
from nodesmith_local.apiserver.tables.presentation import Presentation, form_asked


@dataclass(frozen=True, slots=True)
class Target:
    """The target that a path names. An empty `name` means the collection, an empty `namespace` all namespaces."""

    resource: Resource
    version: str
    namespace: str
    name: str = ""
    subresource: str = ""

    def presentation(self, request: Request, now: Clock) -> Presentation:
        """Return the form in which the client requests the target."""
        include = request.query.get("includeObject", "Metadata")
        return Presentation(form_asked(request.accept), self.resource, self.version, include, now)


def target_of(registry: Registry, group: str, version: str, segments: Sequence[str]) -> Target:
    """Parse the path after `/api/v1/` or `/apis/G/V/`. Raises ApiError 404."""
    namespace = ""
    own = not group and segments[2:3] in (
        ["status"],
        ["finalize"],
    )  # /namespaces/N/status names the namespace itself
    if segments[0] == "namespaces" and len(segments) > 2 and not own:
        namespace, segments = segments[1], segments[2:]
    resource = registry.at(group, version, segments[0])
    if resource is None or len(segments) > 3 or (namespace and not resource.namespaced):
        raise no_such_path()
    name, subresource = (*segments[1:], "", "")[:2]
    if resource.namespaced and not namespace and name:
        raise no_such_path()
    return Target(resource, version, namespace, name, subresource)


def as_target(target: Target, obj: object) -> Object:
    """Return the body as the object that the path names, with missing fields filled in. Raises ApiError 400."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
        raise bad_request("the body must be a Kubernetes object")
    kind, version = target.resource.kind, target.resource.api_version(target.version)
    identity = obj.get("kind") or kind, obj.get("apiVersion") or version
    if identity != (kind, version):
        raise bad_request(
            f'{identity[0]} in version "{identity[1].rpartition("/")[2]}" cannot be handled as a {kind}: '
            f"the path is for {kind} in {version}, the body for {identity[0]} in {identity[1]}"
        )
    metadata = dict(obj.get("metadata") or {})
    name = metadata.get("name") or target.name
    if target.name and name != target.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    if name:
        metadata["name"] = name
    if target.resource.namespaced:
        namespace = target.namespace or "default"
        if (metadata.get("namespace") or namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
    return {**obj, "kind": kind, "apiVersion": version, "metadata": metadata}
