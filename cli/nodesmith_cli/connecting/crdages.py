"""Comparing two versions of a CRD by their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any


class Age(StrEnum):
    """How an installed CRD compares with ours, by the fields of each."""

    SAME = "same"
    OLDER = "older"
    NEWER = "newer"
    DIFFERENT = "different"


def age(there: Mapping[str, Any], ours: Mapping[str, Any]) -> Age:
    """Compare the fields of two CRDs, in all their API versions."""
    theirs, own = set(_fields(there)), set(_fields(ours))
    if theirs == own:
        return Age.SAME
    if theirs < own:
        return Age.OLDER
    return Age.NEWER if own < theirs else Age.DIFFERENT


def _fields(crd: Mapping[str, Any]) -> Iterator[str]:
    for version in (crd.get("spec") or {}).get("versions") or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        yield str(version.get("name"))
        yield from _paths(schema, str(version.get("name")))


def _paths(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{at}.{name}"
        yield from _paths(inner, f"{at}.{name}")
    for part in ("items", "additionalProperties"):
        inner = schema.get(part)
        if isinstance(inner, Mapping):
            yield from _paths(inner, f"{at}[]")
