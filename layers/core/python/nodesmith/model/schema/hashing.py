"""The static drift hash: what must stay the same for a node to count as built from today's manifest.

Order of lists does not matter, and a field set to its zero counts as unset, as with Karpenter's hash (version v3); the
digits are our own, so the version beside them is too and the two are never compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from nodesmith.model.schema.fields import Array, Field, Map, Object

HASH_VERSION_PREFIX = "nodesmith-"
FIRST_HASH_VERSION = f"{HASH_VERSION_PREFIX}v1"
HASH_VERSION = FIRST_HASH_VERSION
"""Of the rules below and of what is left out of a hash: hashes of two versions say nothing about each other."""


def static_hash(field: Field, value: object) -> str:
    """Hash a value that has been read with this field."""
    return sha256(_text(_canonical(field, value)).encode()).hexdigest()[:16]


def _canonical(field: Field, value: Any) -> object:
    match field:
        case Object():
            known = {
                name: _canonical(field.fields[name], value[name]) for name in field.fields if name in value
            }
            rest = {name: item for name, item in value.items() if name not in field.fields}
            return {name: item for name, item in {**rest, **known}.items() if item}
        case Map():
            return {key: _canonical(field.of, item) for key, item in value.items()}
        case Array():
            return sorted((_canonical(field.of, item) for item in value), key=_text)
        case _:
            return value


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Give an object without these fields."""
    return {name: item for name, item in value.items() if name not in names}
