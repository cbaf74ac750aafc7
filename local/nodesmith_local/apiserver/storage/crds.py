"""CustomResourceDefinitions: check one, and derive how to serve its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodesmith_formats.kubernetes.builtin import Schema, object_schema, schema_of_kind
from nodesmith_formats.kubernetes.errors import FieldProblem, invalid_value, required, unsupported
from nodesmith_formats.kubernetes.kinds import Resource, ScalePaths
from nodesmith_formats.kubernetes.objects import Clock, Object, View, dig, name_of, timestamp
from nodesmith_local.apiserver.storage.schemachecks import schema_problems

PLURAL = "customresourcedefinitions.apiextensions.k8s.io"


def resource_of(crd: View) -> Resource:
    """Return the resource that a valid CRD defines."""
    spec, names = crd["spec"], crd["spec"]["names"]
    served = [version for version in spec["versions"] if version.get("served")]
    served.sort(key=lambda version: not version.get("storage"))
    subresources = served[0].get("subresources") or {}
    scale = subresources.get("scale")
    return Resource(
        group=spec["group"],
        versions=tuple(version["name"] for version in served),
        kind=names["kind"],
        plural=names["plural"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        generation=True,
        scale=_scale_paths(scale) if scale else None,
        custom=True,
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        schemas={v["name"]: _as_object(dig(v, "schema", "openAPIV3Schema") or {}) for v in served},
        columns={v["name"]: tuple(v.get("additionalPrinterColumns") or ()) for v in served},
        selectable=tuple(field["jsonPath"].lstrip(".") for field in served[0].get("selectableFields") or ()),
    )


def schema_of(resource: Resource, version: str = "") -> Schema:
    """Return the schema of a built-in or custom kind at a version, by default at the stored one."""
    if not resource.custom:
        return schema_of_kind(resource.group, resource.kind)
    return resource.schemas.get(version) or resource.schemas[resource.versions[0]]


def established(crd: Object, now: Clock) -> Object:
    """Return the CRD with defaults and the status of one that is accepted and served."""
    spec = crd["spec"]
    names: Mapping[str, Any] = spec["names"]
    names = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List", **names}
    since = timestamp(now())
    reasons = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": since}
        for kind, reason in reasons.items()
    ]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    old = dig(crd, "status", "conditions")
    status = {"conditions": old or conditions, "acceptedNames": names, "storedVersions": stored}
    conversion = spec.get("conversion") or {"strategy": "None"}
    return {**crd, "spec": {**spec, "names": names, "conversion": conversion}, "status": status}


def problems_of(crd: View) -> Iterator[FieldProblem]:
    """Yield the problems that keep a CRD from being served."""
    spec = crd.get("spec")
    if not isinstance(spec, Mapping):
        yield required("spec")
        return
    for field in ("group", "scope"):
        if not spec.get(field):
            yield required(f"spec.{field}")
    if spec.get("scope") not in (None, "", "Namespaced", "Cluster"):
        yield unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    for field in ("plural", "kind"):
        if not dig(spec, "names", field):
            yield required(f"spec.names.{field}")
    expected = f"{dig(spec, 'names', 'plural')}.{spec.get('group')}"
    if name_of(crd) != expected:
        yield invalid_value("metadata.name", name_of(crd), 'must be spec.names.plural+"."+spec.group')
    yield from _version_problems(spec)


def _version_problems(spec: Mapping[str, Any]) -> Iterator[FieldProblem]:
    versions = spec.get("versions") or []
    if not versions:
        yield required("spec.versions", "must have at least one version")
        return
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid_value(
            "spec.versions", len(versions), "must have exactly one version marked as storage version"
        )
    if not any(version.get("served") for version in versions):
        yield invalid_value("spec.versions", len(versions), "must have at least one version marked as served")
    for index, version in enumerate(versions):
        if not version.get("name"):
            yield required(f"spec.versions[{index}].name")
        schema_path = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = dig(version, "schema", "openAPIV3Schema")
        if schema is None:
            yield required(schema_path, "schemas are required")
        else:
            yield from schema_problems(schema, schema_path, root=True)


def _as_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a version's schema, extended by the fields that every object has."""
    return {**schema, "properties": {**(schema.get("properties") or {}), **object_schema()}}


def _scale_paths(scale: Mapping[str, str]) -> ScalePaths:
    def path(text: str) -> tuple[str, ...]:
        return tuple(text.lstrip(".").split("."))

    selector = scale.get("labelSelectorPath")
    return ScalePaths(
        path(scale.get("specReplicasPath", ".spec.replicas")),
        path(scale.get("statusReplicasPath", ".status.replicas")),
        path(selector) if selector else None,
    )
