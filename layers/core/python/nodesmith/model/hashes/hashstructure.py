"""Hashes of Go values as Karpenter takes them: github.com/mitchellh/hashstructure/v2, FormatV2, FNV-1 of 64 bits.

With the options SlicesAsSets, IgnoreZeroValue and ZeroNil. A hasher takes a value as a manifest holds it. The value of
a field that is absent is Go's zero and left out, as is the zero of a field that is no pointer; an empty list or map
that is given is none. Equal items of a list cancel each other out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

Hasher: TypeAlias = Callable[[Any], int]

_BASIS, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1
_SURROGATES = re.compile("[\ud800-\udfff]")


class Field(NamedTuple):
    """A field of a Go struct: its name in manifests, its name in Go, how its value hashes.

    `zero` is its value that counts as absent; None for a pointer, a list or a map, which has none but null.
    """

    json: str
    name: str
    hasher: Hasher
    zero: object = None


def struct(name: str, *fields: Field) -> Hasher:
    """Hash a struct of this Go type, with its fields in Go's order."""

    def hashed(value: Mapping[str, Any]) -> int:
        total = text(name)
        for field in fields:
            item = value.get(field.json)
            if item is not None and item != field.zero:
                total = _bytes8(total ^ _pair(text(field.name), field.hasher(item)))
        return total

    return hashed


def slice_of(hasher: Hasher) -> Hasher:
    """Hash a list, as a set."""

    def hashed(items: list[Any]) -> int:
        total = 0
        for item in items:
            total ^= hasher(item)
        return total

    return hashed


def map_of(hasher: Hasher) -> Hasher:
    """Hash a map with keys of text."""

    def hashed(items: Mapping[str, Any]) -> int:
        total = 0
        for key, item in items.items():
            total ^= _pair(text(key), hasher(item))
        return _bytes8(total)

    return hashed


@lru_cache(maxsize=1024)
def text(value: str) -> int:
    """Hash a string; half of a surrogate pair is what Go's decoder makes of it, U+FFFD."""
    return raw(_SURROGATES.sub("\ufffd", value).encode())


def int32(value: int) -> int:
    """Hash an int32."""
    return raw((value & 2**32 - 1).to_bytes(4, "little"))


def int64(value: int) -> int:
    """Hash an int64."""
    return _bytes8(value & _MASK)


def boolean(value: bool) -> int:
    """Hash a bool."""
    return raw(bytes((value,)))


def raw(data: bytes) -> int:
    """Hash bytes."""
    total = _BASIS
    for byte in data:
        total = total * _PRIME & _MASK ^ byte
    return total


def _bytes8(value: int) -> int:
    return raw(value.to_bytes(8, "little"))


def _pair(first: int, second: int) -> int:
    return raw(first.to_bytes(8, "little") + second.to_bytes(8, "little"))
