"""Checks of a CRD's schema: it must be structural, with known keywords and valid values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodesmith_formats.kubernetes.errors import FieldProblem, invalid_value, required, unsupported

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_COUNTS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_LOOSE = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(re.compile(value.replace(r"\z", r"\Z")))
    except re.error:
        return False


_WORDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"),
        (_is_count, "a whole number, 0 or more"),
    ),
    **dict.fromkeys(("maximum", "minimum"), (_is_number, "a number")),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    **dict.fromkeys(
        ("nullable", "exclusiveMaximum", "exclusiveMinimum", *_LOOSE), (_is_flag, "true or false")
    ),
    "enum": (lambda value: isinstance(value, list) and bool(value), "a list of values"),
    "pattern": (_is_pattern, "a regular expression"),
    "required": (_is_names, "a list of field names"),
    "x-kubernetes-list-map-keys": (_is_names, "a list of field names"),
    "x-kubernetes-list-type": (lambda value: value in ("atomic", "set", "map"), "atomic, set or map"),
    "x-kubernetes-map-type": (lambda value: value in ("atomic", "granular"), "atomic or granular"),
}


def schema_problems(
    schema: object, path: str, *, root: bool = False, typed: bool = True
) -> Iterator[FieldProblem]:
    """Yield the problems of a schema. Below allOf and the like (`typed` False), a type is optional."""
    if not isinstance(schema, Mapping):
        yield invalid_value(path, schema, "must be a schema")
        return
    kind = schema.get("type")
    if kind is not None and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    elif kind is None and typed and not any(schema.get(keyword) for keyword in _LOOSE):
        yield required(f"{path}.type", "must not be empty for specified object fields")
    elif root and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")
    for keyword, (fits, expected) in _WORDS.items():
        if keyword in schema and not fits(schema[keyword]):
            yield invalid_value(f"{path}.{keyword}", schema[keyword], f"must be {expected}")
    yield from _inner_problems(schema, path, typed=typed)


def _inner_problems(schema: Mapping[str, Any], path: str, *, typed: bool) -> Iterator[FieldProblem]:
    properties = schema.get("properties", {})
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            yield from schema_problems(inner, f"{path}.properties[{name}]", typed=typed)
    else:
        yield invalid_value(f"{path}.properties", properties, "must be a map of schemas")
    if "items" in schema:
        yield from schema_problems(schema["items"], f"{path}.items", typed=typed)
    if not isinstance(schema.get("additionalProperties", True), bool):
        yield from schema_problems(
            schema["additionalProperties"], f"{path}.additionalProperties", typed=typed
        )
    if "not" in schema:
        yield from schema_problems(schema["not"], f"{path}.not", typed=False)
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(keyword, [])
        if not isinstance(parts, list):
            yield invalid_value(f"{path}.{keyword}", parts, "must be a list of schemas")
            continue
        for index, part in enumerate(parts):
            yield from schema_problems(part, f"{path}.{keyword}[{index}]", typed=False)
