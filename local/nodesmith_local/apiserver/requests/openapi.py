"""OpenAPI v3: the document that lets kubectl leave validation to the server, and schemas of custom resources.

There is no v2 document; clients that request it get a 404 and fall back.
"""

from __future__ import annotations

from hashlib import sha256

from nodesmith_formats.kubernetes.errors import no_such_path
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Object
from nodesmith_local.apiserver.requests.messages import Reply, reply
from nodesmith_local.apiserver.storage.crds import schema_of
from nodesmith_local.apiserver.storage.registry import Registry

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": kind}}
    for name, kind in (
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
        ("force", "boolean"),
    )
]


def described(registry: Registry, path: str) -> Reply:
    """Answer /openapi/v3 (the index) and /openapi/v3/{api/v1 or apis/G/V}. Raises ApiError 404."""
    documents = {
        f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
        for group, versions in registry.groups().items()
        for version in versions
    }
    if not path:
        index = {
            key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={_hash(registry, *place)}"}
            for key, place in documents.items()
        }
        return reply({"paths": index})
    if path not in documents:
        raise no_such_path()
    return reply(_document(registry, *documents[path]))


def _document(registry: Registry, group: str, version: str) -> Object:
    served = _served(registry, group, version)
    paths: Object = {}
    schemas: Object = {}
    for resource in served:
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        kind = {"group": group, "version": version, "kind": resource.kind}
        name = ".".join([*reversed((group or "core").split(".")), version, resource.kind])
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        responses = {"200": {"description": "OK", "content": content}}
        operation = {
            "parameters": _PARAMETERS,
            "responses": responses,
            "x-kubernetes-group-version-kind": kind,
        }
        create = {**operation, "x-kubernetes-action": "post", "requestBody": {"content": content}}
        patch = {**operation, "x-kubernetes-action": "patch", "requestBody": {"content": content}}
        paths[f"{root}{scope}/{resource.plural}"] = {"post": create}
        paths[f"{root}{scope}/{resource.plural}/{{name}}"] = {"patch": patch}
        schemas[name] = {**_schema(resource, version), "x-kubernetes-group-version-kind": [kind]}
    info = {"title": "Kubernetes", "version": "v1.36.0-nodesmith"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _served(registry: Registry, group: str, version: str) -> list[Resource]:
    return [resource for resource in registry if resource.group == group and version in resource.versions]


def _schema(resource: Resource, version: str) -> Object:
    return dict(schema_of(resource, version))


def _hash(registry: Registry, group: str, version: str) -> str:
    """Return a hash of a document's content, since clients cache the document by its URL."""
    served = repr(
        sorted(
            (resource.kind, repr(_schema(resource, version)))
            for resource in _served(registry, group, version)
        )
    )
    return sha256(served.encode()).hexdigest().upper()
