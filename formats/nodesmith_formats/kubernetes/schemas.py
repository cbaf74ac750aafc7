"""Structural schemas of CRDs: prune unknown fields, fill in defaults, check the rest.

This covers all of apiextensions/v1 except `x-kubernetes-validations` (CEL), which `celrules` checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from nodesmith.model.apimachinery.quantities import QuantityError, whole_units
from nodesmith_formats.kubernetes.builtin import Schema, object_schema
from nodesmith_formats.kubernetes.errors import FieldProblem, duplicate, invalid_value, required, unsupported
from nodesmith_formats.kubernetes.objects import clone, parse_timestamp

QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_KEEP = "x-kubernetes-preserve-unknown-fields"


def prune(schema: Schema, value: Any, dropped: list[str], path: str = "") -> Any:
    """Return `value` without nulls and without fields that `schema` lacks.

    The paths of such fields are appended to `dropped`.
    """
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        items = schema["items"]
        return [prune(items, item, dropped, f"{path}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return str(value) if schema.get("format") == "quantity" and isinstance(value, (int, float)) else value
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    if schema.get("x-kubernetes-embedded-resource"):
        properties = {**properties, **object_schema()}
    extra = schema.get("additionalProperties")
    pruned: dict[str, Any] = {}
    for key, item in value.items():
        inner = properties.get(key, extra)
        if isinstance(inner, Mapping):
            if item is not None or inner.get("nullable"):
                inside = f"{path}.{key}" if path else key
                pruned[key] = item if type(item) is str else prune(inner, item, dropped, inside)
        elif extra or schema.get(_KEEP):
            pruned[key] = item
        else:
            dropped.append(f"{path}.{key}" if path else key)
    return pruned


def with_defaults(schema: Schema, value: Any) -> Any:
    """Return `value` with the schema's defaults for fields that are missing, or null and not nullable."""
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [with_defaults(schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    filled: dict[str, Any] = {}
    for key, item in value.items():
        inner = properties.get(key, extra if isinstance(extra, Mapping) else None)
        if inner is not None and item is None and not inner.get("nullable") and "default" in inner:
            continue
        filled[key] = item if inner is None else with_defaults(inner, item)
    for key, inner in properties.items():
        if key not in filled and "default" in inner:
            filled[key] = with_defaults(inner, clone(inner["default"]))
    return filled


def problems_of(schema: Schema, value: Any, path: str = "") -> Iterator[FieldProblem]:
    """Yield the problems of `value` under `schema`."""
    if value is None and schema.get("nullable"):
        return
    yield from _choice_problems(schema, value, path)
    wrong = _type_problem(schema, value, path)
    if wrong:
        yield wrong
        yield from _composed_problems(schema, value, path)
        return
    yield from _value_problems(schema, value, path)
    if isinstance(value, dict):
        yield from _object_problems(schema, value, path)
    elif isinstance(value, list):
        yield from _list_problems(schema, value, path)
    yield from _composed_problems(schema, value, path)


def misfits(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Yield a typed decoder's error messages about `value`, field by field."""
    wrong = _expected_type(schema, value)
    if wrong == "quantity":
        yield f"{QUANTITY_RULE} ({path}: {_quantity_problem(value)})"
    elif wrong:
        yield f"json: cannot unmarshal {_type_name(value)} into field {path} of type {wrong}"
    elif isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            inner = properties.get(key, extra)
            if isinstance(inner, Mapping) and not (type(item) is str and _is_text(inner)):
                yield from misfits(inner, item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield from misfits(schema["items"], item, f"{path}[{index}]")


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: not isinstance(v, bool) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}  # fmt: skip


def _expected_type(schema: Schema, value: Any) -> str:
    """Return the type that `value` should have, or "" if it fits."""
    if schema.get("x-kubernetes-int-or-string"):
        return "" if _TYPES["integer"](value) or isinstance(value, str) else "integer,string"
    form = schema.get("format")
    if form == "quantity":
        return "quantity" if _quantity_problem(value) else ""
    expected = str(schema.get("type") or "")
    return "" if expected not in _TYPES or _TYPES[expected](value) else expected


def _is_text(schema: Schema) -> bool:
    return (
        schema.get("type") == "string"
        and "format" not in schema
        and "x-kubernetes-int-or-string" not in schema
    )


def _quantity_problem(value: Any) -> str:
    try:
        whole_units(value)
    except QuantityError as error:
        return str(error)
    return ""


def _type_problem(schema: Schema, value: Any, path: str) -> FieldProblem | None:
    expected = _expected_type(schema, value)
    if not expected:
        return None
    name = _type_name(value)
    # a real server then names the formats instead of the types
    if schema.get("format") == "date-time" and name != "array":
        expected, name = "date-time", {"integer": "int64", "number": "float64"}.get(name, "")
    quoted_name = json.dumps(name)
    detail = f"{path} in body must be of type {expected}: {quoted_name}"
    return FieldProblem(path, "FieldValueTypeInvalid", f"Invalid value: {quoted_name}: {detail}")


def _type_name(value: Any) -> str:
    return next((name for name, fits in _TYPES.items() if fits(value)), "null")


def _choice_problems(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        yield unsupported(path, value, choices)


def _value_problems(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    if isinstance(value, str):
        yield from _text_problems(schema, value, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_problems(schema, value, path)


def _text_problems(schema: Schema, value: str, path: str) -> Iterator[FieldProblem]:
    if len(value) > schema.get("maxLength", len(value)):
        detail = f"may not be more than {schema['maxLength']} bytes"
        yield FieldProblem(path, "FieldValueTooLong", f"Too long: {detail}")
        return  # a real server also stops at the first of these
    if len(value) < schema.get("minLength", 0):
        yield invalid_value(
            path, value, f"{path} in body should be at least {schema['minLength']} chars long"
        )
        return
    pattern = schema.get("pattern")
    if pattern and not _compiled(pattern).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    if schema.get("format") == "date-time" and parse_timestamp(value) is None:
        quoted = json.dumps(value)
        detail = f"{path} in body must be of type date-time: {quoted}"
        yield FieldProblem(path, "FieldValueTypeInvalid", f"Invalid value: {quoted}: {detail}")


def _number_problems(schema: Schema, value: float, path: str) -> Iterator[FieldProblem]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        than = "" if schema.get("exclusiveMinimum") else " or equal to"
        yield invalid_value(path, value, f"{path} in body should be greater than{than} {low}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        than = "" if schema.get("exclusiveMaximum") else " or equal to"
        yield invalid_value(path, value, f"{path} in body should be less than{than} {high}")
    multiple = schema.get("multipleOf")
    if multiple and value % multiple:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {multiple}")


def _object_problems(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[FieldProblem]:
    for key in schema.get("required") or ():
        if key not in value:
            yield required(f"{path}.{key}" if path else key)
    if len(value) > schema.get("maxProperties", len(value)):
        yield _too_many(path, len(value), schema["maxProperties"])
    if len(value) < schema.get("minProperties", 0):
        yield invalid_value(
            path, value, f"{path} in body should have at least {schema['minProperties']} properties"
        )
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        inner = properties.get(key, extra if isinstance(extra, Mapping) else None)
        if inner is not None:
            yield from problems_of(inner, item, f"{path}.{key}" if path else key)


def _list_problems(schema: Schema, value: list[Any], path: str) -> Iterator[FieldProblem]:
    if len(value) > schema.get("maxItems", len(value)):
        yield _too_many(path, len(value), schema["maxItems"])
    if len(value) < schema.get("minItems", 0):
        yield invalid_value(
            path, len(value), f"{path} in body should have at least {schema['minItems']} items"
        )
    items = schema.get("items")
    if isinstance(items, Mapping):
        for index, item in enumerate(value):
            yield from problems_of(items, item, f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") in ("set", "map"):
        identities: set[str] = set()
        for index, item in enumerate(value):
            identity = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
            text = json.dumps(identity, sort_keys=True)
            if text in identities:
                yield duplicate(f"{path}[{index}]", identity)
            identities.add(text)


def _composed_problems(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    for part in schema.get("allOf") or ():
        yield from problems_of(part, value, path)
    for combinator, need in (("anyOf", "at least one"), ("oneOf", "one and only one")):
        parts = schema.get(combinator)
        if parts:
            matches = sum(not any(problems_of(part, value, path)) for part in parts)
            if matches == 0 and not schema.get("type"):
                yield from problems_of(parts[0], value, path)
            if matches == 0 or (matches > 1 and combinator == "oneOf"):
                detail = f'"{path}" must validate {need} schema ({combinator})'
                yield FieldProblem("<nil>", "FieldValueInvalid", f'Invalid value: "": {detail}')
    if isinstance(schema.get("not"), Mapping) and not any(problems_of(schema["not"], value, path)):
        yield invalid_value(path, value, f"{path} in body must not validate the schema (not)")


def _too_many(path: str, count: int, maximum: int) -> FieldProblem:
    return FieldProblem(path, "FieldValueTooMany", f"Too many: {count}: must have at most {maximum} items")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Go's \z and Python's \Z are the same anchor; the rest of the syntax that CRDs use is the same in both.
    return re.compile(pattern.replace(r"\z", r"\Z"))
