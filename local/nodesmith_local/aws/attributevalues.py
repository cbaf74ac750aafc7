"""Faster serialization of DynamoDB's attribute values: moto tries all ten types for each value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.models.dynamo_type import DynamoType

_AS_THEY_ARE = frozenset("S N BOOL NULL SS NS".split())


@contextmanager
def attribute_values_in_one_go() -> Iterator[None]:
    """Serialize attribute values by their own type alone; values with bytes are left to moto."""
    original = BaseJSONSerializer._serialize_type_structure  # noqa: SLF001 moto offers no public hook

    def serialize(self: BaseJSONSerializer, serialized: Any, value: Any, shape: Any, key: str) -> None:
        if shape.name == "AttributeValue" and (converted := _written(value)) is not None:
            serialized[key] = converted
        else:
            original(self, serialized, value, shape, key)

    with patch.object(BaseJSONSerializer, "_serialize_type_structure", serialize):
        yield


def _written(value: Any) -> dict[str, Any] | None:
    """Return a value as JSON data, or None if it contains bytes."""
    ((kind, inner),) = ((value.type, value.value),) if isinstance(value, DynamoType) else value.items()
    if kind in _AS_THEY_ARE:
        return {kind: inner}
    if kind == "L":
        listed = [_written(item) for item in inner]
        return None if None in listed else {kind: listed}
    if kind == "M":
        mapped = {name: _written(item) for name, item in inner.items()}
        return None if None in mapped.values() else {kind: mapped}
    return None
