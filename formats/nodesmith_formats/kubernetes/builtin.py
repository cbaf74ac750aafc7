"""Schemas of the built-in kinds: every field's type, and how lists and objects merge.

The facts are in builtin_types.json, which formats/build_builtin_types.py generates from the Go modules of the API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

_PACKAGES = {
    "": "core",
    "apiextensions.k8s.io": "apiextensions",
    "apps": "apps",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "autoscaling": "autoscaling",
    "batch": "batch",
    "coordination.k8s.io": "coordination",
    "node.k8s.io": "node",
    "policy": "policy",
    "rbac.authorization.k8s.io": "rbac",
    "resource.k8s.io": "resource",
    "scheduling.k8s.io": "scheduling",
    "storage.k8s.io": "storage",
}
_SCALARS: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "Quantity": {"format": "quantity"},
    "IntOrString": {"x-kubernetes-int-or-string": True},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
}
_NAMED: Schema = {"apiVersion": _SCALARS["string"], "kind": _SCALARS["string"]}


class Field(NamedTuple):
    """One field of a struct: protobuf number, type, and merge attributes (see formats/build_builtin_types.py)."""

    number: int
    type: str
    words: tuple[str, ...]


def type_of(group: str, kind: str) -> str:
    """Return the struct of a built-in kind, such as `core.Pod`. DeleteOptions is the same struct in every group."""
    return "meta.DeleteOptions" if kind == "DeleteOptions" else f"{_PACKAGES.get(group, group)}.{kind}"


@cache
def fields_of(struct: str) -> Mapping[str, Field]:
    """Return the fields of a struct by their JSON names, or an empty mapping for an unknown struct."""
    fields: dict[str, Field] = {}
    for name, text in _facts()["types"].get(struct, {}).items():
        number, kind, *attributes = text.split()
        fields[name] = Field(int(number), kind, tuple(attributes))
    return fields


@cache
def schema_of_kind(group: str, kind: str) -> Schema:
    """Return the structural schema of a built-in kind."""
    schema = _struct(type_of(group, kind))
    return {**schema, "properties": {**_NAMED, **schema["properties"]}}


@cache
def object_schema() -> Schema:
    """Return the schema of the fields that every object has: apiVersion, kind, metadata."""
    return {**_NAMED, "metadata": _struct("meta.ObjectMeta")}


@cache
def _facts() -> Mapping[str, Any]:
    facts: Mapping[str, Any] = json.loads((Path(__file__).parent / "builtin_types.json").read_text())
    return facts


@cache
def _struct(name: str) -> Schema:
    properties: dict[str, Schema] = {}
    for field_name, field in fields_of(name).items():
        if "inline" in field.words:
            properties |= _struct(field.type)["properties"]
        else:
            properties[field_name] = {**_typed(field.type), **_merging(field)}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "x-kubernetes-map-type": "atomic"} if name in _facts()["atomic"] else schema


def _typed(kind: str) -> Schema:
    if kind.startswith("[]"):
        return {"type": "array", "items": _typed(kind[2:])}
    if kind.startswith("map[string]"):
        return {"type": "object", "additionalProperties": _typed(kind[11:])}
    return _SCALARS.get(kind) or _struct(kind)


def _merging(field: Field) -> Schema:
    """Return the schema extensions that describe how this field merges."""
    extensions: dict[str, Any] = {}
    strategies = ["retainKeys"] if "retain" in field.words else []
    for attribute in field.words:
        name, _, value = attribute.partition(":")
        if name == "merge":
            strategies.insert(0, "merge")
            extensions |= {"x-kubernetes-patch-merge-key": value} if value else {}
        elif name == "keys":
            extensions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": value.split(",")}
        elif name == "set":
            extensions["x-kubernetes-list-type"] = "set"
        elif name == "atomic":
            extensions["x-kubernetes-map-type"] = "atomic"
    if strategies:
        extensions["x-kubernetes-patch-strategy"] = ",".join(strategies)
    return extensions
