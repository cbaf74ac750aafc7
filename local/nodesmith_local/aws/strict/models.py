"""Checks of requests against botocore's service model: required members, enums, lengths, ranges and patterns.

botocore's client validates only types, required members and minima. The checks of a shape are compiled once; parts of a
request that the model does not constrain are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape
from moto.core.utils import get_service_model

from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal

Check = Callable[[Any, str], "str | None"]
"""Returns the problem with a value at a path, or None."""
_INVALID = {"ec2": "InvalidParameterValue", "sqs": "InvalidParameterValue", "iam": "ValidationError"}
_MISSING = {"ec2": "MissingParameter", "sqs": "MissingParameter", "iam": "ValidationError"}
_ELSEWHERE = "ValidationException"
_OPEN_ENUMS = frozenset({"InstanceType"})
"""New instance types are on sale before botocore lists them."""
# Unicode classes that models use and `re` lacks; \w covers letters, numbers and the underscore.
_CLASSES = {r"\p{L}": r"\w", r"\p{N}": r"\d", r"\p{Z}": " \u00a0\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"}
_LENGTHS = frozenset({"string", "list", "map", "blob"})


def check_model(request: AwsRequest) -> None:
    """Raise Refusal if the request does not fit its operation's model. Works for moto's services only."""
    check = _check_of(request.service, request.operation)
    trouble = check(request.parameters, "") if check else None
    if trouble:
        codes = _MISSING if trouble.startswith("Missing") else _INVALID
        raise Refusal(codes.get(request.service, _ELSEWHERE), trouble)


@cache
def _check_of(service: str, operation: str) -> Check | None:
    shape = get_service_model(service).operation_model(operation).input_shape
    return _compiled(shape, ()) if shape else None


def _compiled(shape: Shape, ancestors: tuple[str, ...]) -> Check | None:
    """Return the check of a shape, or None if the shape has no constraints. `ancestors` are the enclosing shapes."""
    if shape.name in ancestors:
        return None  # a recursive shape: DynamoDB's attribute values, which models do not constrain
    inside = (*ancestors, shape.name)
    if isinstance(shape, StructureShape):
        return _structure(shape, inside)
    checks = [check for check in (_size(shape), _enum(shape), _pattern(shape)) if check]
    if isinstance(shape, ListShape) and (each := _compiled(shape.member, inside)):
        checks.append(_of_each(each))
    if isinstance(shape, MapShape) and (value := _compiled(shape.value, inside)):
        checks.append(_of_values(value))
    return _all_of(checks) if checks else None


def _structure(shape: StructureShape, inside: tuple[str, ...]) -> Check | None:
    members = {
        name: member_check
        for name, member in shape.members.items()
        if (member_check := _compiled(member, inside))
    }
    required = tuple(shape.required_members)
    if not members and not required:
        return None

    def check(value: Any, path: str) -> str | None:
        for name in required:
            if value.get(name) is None:
                return f"Missing required parameter {path}{name}."
        for name, of_member in members.items():
            member_value = value.get(name)
            if member_value is not None and (trouble := of_member(member_value, f"{path}{name}")):
                return trouble
        return None

    return lambda value, path: (
        check(value, f"{path}." if path else "") if isinstance(value, Mapping) else None
    )


def _size(shape: Shape) -> Check | None:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low is None and high is None:
        return None
    is_length = shape.type_name in _LENGTHS

    def check(value: Any, path: str) -> str | None:
        size = len(value) if is_length else float(value)
        if (low is None or size >= low) and (high is None or size <= high):
            return None
        what = "length" if is_length else "value"
        return f"Invalid {what} {size:g} of parameter {path}: valid is {low} to {high}."

    return check


def _enum(shape: Shape) -> Check | None:
    values = frozenset(shape.metadata.get("enum") or ())
    if not values or shape.name in _OPEN_ENUMS:
        return None
    return lambda value, path: (
        None
        if value in values
        else f"Invalid value {value!r} of parameter {path}: valid are {sorted(values)}."
    )


def _pattern(shape: Shape) -> Check | None:
    text = shape.metadata.get("pattern")
    if not text:
        return None
    pattern = re.compile(_in_python(text))
    return lambda value, path: (
        None
        if pattern.fullmatch(value)
        else f"Invalid value {value!r} of parameter {path}: must match {text}."
    )


def _in_python(pattern: str) -> str:
    for posix_class, python_class in _CLASSES.items():
        pattern = pattern.replace(posix_class, python_class)
    return pattern


def _of_each(check: Check) -> Check:
    def check_items(value: Any, path: str) -> str | None:
        for number, item in enumerate(value):
            if trouble := check(item, f"{path}[{number}]"):
                return trouble
        return None

    return check_items


def _of_values(check: Check) -> Check:
    return lambda value, path: next(
        (trouble for key, item in value.items() if (trouble := check(item, f"{path}.{key}"))), None
    )


def _all_of(checks: list[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]
    return lambda value, path: next((trouble for check in checks if (trouble := check(value, path))), None)
