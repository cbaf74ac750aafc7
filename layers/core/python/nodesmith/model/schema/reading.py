"""Check manifests against their kinds: fill in defaults, and report all problems at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, assert_never

from nodesmith.model.apimachinery.problems import Report, at, did_you_mean, nearest, shown
from nodesmith.model.apimachinery.quantities import QuantityError, whole_units
from nodesmith.model.schema.fields import (
    Array,
    Boolean,
    Field,
    Integer,
    Kind,
    Map,
    Object,
    Quantity,
    Rule,
    Text,
)
from nodesmith.model.schema.nodeclaims import TIME_RULE

_DEEPEST_OPEN_LEVEL = 16


def read(field: Field, value: object, path: str, report: Report) -> Any:
    """Return `value` as the field defines it: defaults filled in, nulls and unknown fields left out.

    A value that does not fit is reported as fatal. The returned value is then fit only for further checks.
    """
    before = report.fatal
    clean = _read(field, value, path, report)
    if report.fatal == before and not isinstance(field, (Integer, Boolean, Quantity)):
        for rule in field.rules:
            _apply(rule, clean, path, report)
    return clean


def _read(field: Field, value: object, path: str, report: Report) -> Any:
    match field:
        case Text():
            return _text(field, value, path, report)
        case Object():
            return _object(field, value, path, report)
        case Array():
            return _array(field, value, path, report)
        case Map():
            return _map(field, value, path, report)
        case Quantity():
            return _quantity(value, path, report)
        case Integer():
            return _integer(field, value, path, report)
        case Boolean():
            if not isinstance(value, bool):
                report.add(path, shown(value), "must be true or false, without quotes")
            return value
        case _:
            assert_never(field)


def _apply(rule: Rule, value: object, path: str, report: Report) -> None:
    if rule.check is None or rule.check(value):
        return
    better = rule.advise(value) if rule.advise else None
    if rule.field and isinstance(value, Mapping):
        path, value = f"{path}.{rule.field}", value.get(rule.field)
    actual = "missing" if value is None else shown(value)
    report.add(path, actual, better or rule.message, fatal=rule.fatal)


def _text(field: Text, value: object, path: str, report: Report) -> object:
    if not isinstance(value, str):
        quotes = ", so put it in quotes" if isinstance(value, (bool, int, float)) else ""
        report.add(path, shown(value), f"must be text{quotes}")
    elif field.enum and value not in field.enum:
        report.add(path, shown(value), f"use one of {', '.join(field.enum)}{did_you_mean(value, field.enum)}")
    elif field.max_length is not None and len(value) > field.max_length:
        report.add(
            path, shown(value), f"must have at most {field.max_length} characters, this has {len(value)}"
        )
    elif len(value) < field.min_length:
        report.add(path, shown(value), "must not be empty")
    elif field.pattern and not re.fullmatch(field.pattern, value):
        example = f", for example {field.example}" if field.example else ""
        report.add(path, shown(value), f"must match {field.pattern}{example}")
    return value


def _integer(field: Integer, value: object, path: str, report: Report) -> object:
    low, high = field.minimum, field.maximum
    if isinstance(value, bool) or not isinstance(value, int):
        report.add(path, shown(value), "must be a whole number, without quotes")
    elif value > high or value < (-high if low is None else low):
        least = "" if low is None else f"at least {low} and "
        report.add(path, shown(value), f"must be {least}at most {high}")
    return value


def _quantity(value: object, path: str, report: Report) -> object:
    try:
        if whole_units(value, per_unit=1000) < 0:
            report.add(path, shown(value), "must not be negative")
    except QuantityError as error:
        report.add(path, shown(value), f"must be a quantity, {error.remedy}")
    return value


def _array(field: Array, value: object, path: str, report: Report) -> object:
    if not isinstance(value, list):
        report.add(path, shown(value), "must be a list")
        return []
    if field.max_items is not None and len(value) > field.max_items:
        report.add(path, shown(value), f"must have at most {field.max_items} items")
        return []
    if len(value) < field.min_items:
        report.add(path, shown(value), f"must have at least {field.min_items} item")
    return [read(field.of, item, f"{path}[{number}]", report) for number, item in enumerate(value)]


def _map(field: Map, value: object, path: str, report: Report) -> object:
    if not isinstance(value, Mapping):
        report.add(path, shown(value), "must be a map")
        return {}
    if field.max_entries is not None and len(value) > field.max_entries:
        report.add(path, shown(value), f"must have at most {field.max_entries} entries")
        return {}
    clean = {}
    for key, item in value.items():
        inner = at(path, key)
        if field.keys is not None or not isinstance(key, str):
            read(field.keys or Text(), key, f"{inner} (the key)", report)
        if item is not None:
            clean[key] = read(field.of, item, inner, report)
    return clean


def _object(field: Object, value: object, path: str, report: Report) -> object:
    if not isinstance(value, Mapping):
        report.add(path, shown(value), "must be a map")
        return {}
    clean = {}
    for name, inner in field.fields.items():
        given = value.get(name)
        if given is None:
            given = inner.default
        if given is not None:
            clean[name] = read(inner, given, f"{path}.{name}", report)
        elif name in field.required:
            report.add(f"{path}.{name}", "missing", "it is required")
    for name, item in value.items():
        if name not in field.fields:
            _unknown(field, clean, name, item, path, report)
    return clean


def _unknown(
    field: Object, clean: dict[str, object], name: object, value: object, path: str, report: Report
) -> None:
    if not field.open:
        if not report.is_full:
            report.add(
                at(path, name),
                "an unknown field, which is ignored",
                nearest(name, tuple(field.fields)),
                fatal=False,
            )
    elif not isinstance(name, str) or not _is_json(value):
        report.add(
            at(path, name),
            shown(value),
            f"must be plain data, nested at most {_DEEPEST_OPEN_LEVEL} levels deep",
        )
    elif value is not None:
        clean[name] = value


def _is_json(value: object, depth: int = 0) -> bool:
    if depth > _DEEPEST_OPEN_LEVEL:
        return False
    match value:
        case None | str() | bool() | int() | float():
            return True
        case list():
            return all(_is_json(item, depth + 1) for item in value)
        case dict():
            return all(isinstance(key, str) and _is_json(item, depth + 1) for key, item in value.items())
        case _:
            return False


_TIME = Text(rules=(TIME_RULE,))
_METADATA = Object(
    {
        "name": Text(min_length=1, max_length=253),
        "uid": Text(default=""),
        "generation": Integer(minimum=0, default=0),
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "labels": Map(Text()),
        "annotations": Map(Text()),
    },
    required=("name",),
)
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")


class Manifest(NamedTuple):
    """The checked metadata and spec of an object. Use them only if `report` has no fatal problem."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    report: Report

    @property
    def identity(self) -> dict[str, Any]:
        """Name, uid, generation and whether the object is being deleted, as constructor arguments of any kind."""
        return {
            "name": self.metadata["name"],
            "uid": self.metadata["uid"],
            "generation": self.metadata["generation"],
            "deleting": "deletionTimestamp" in self.metadata,
        }


def read_manifest(kind: Kind, manifest: object) -> Manifest:
    """Check an object of this kind completely. Never raises, whatever JSON or YAML `manifest` is."""
    body = manifest if isinstance(manifest, Mapping) else {}
    raw_metadata = body.get("metadata")
    metadata = (
        {k: v for k, v in raw_metadata.items() if k in _METADATA.fields}
        if isinstance(raw_metadata, Mapping)
        else raw_metadata
    )
    report = Report(f"{kind.name}/{_name(metadata)}")
    if body is not manifest:
        report.add("the manifest", shown(manifest), "must be a map with apiVersion, kind, metadata and spec")
        return Manifest({}, {}, report)
    _check_top(kind, body, report)
    return Manifest(
        read(_METADATA, {} if metadata is None else metadata, "metadata", report),
        read(kind.spec, {} if body.get("spec") is None else body["spec"], "spec", report),
        report,
    )


def _check_top(kind: Kind, body: Mapping[object, object], report: Report) -> None:
    # Items of a list from the API server carry neither apiVersion nor kind.
    for field, expected in (("apiVersion", kind.api_version), ("kind", kind.name)):
        actual = body.get(field)
        if actual is not None and actual != expected:
            report.add(field, shown(actual), f"must be {expected}")
    for name in body:
        if name not in _TOP:
            report.add(at("", name), "an unknown field, which is ignored", nearest(name, _TOP), fatal=False)


def _name(metadata: object) -> str:
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name[:253] if isinstance(name, str) and name else "(unnamed)"
