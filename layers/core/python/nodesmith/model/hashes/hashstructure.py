"""Hashes of Go values as in Karpenter: github.com/mitchellh/hashstructure/v2, FormatV2, 64-bit FNV-1.

The options are SlicesAsSets, IgnoreZeroValue and ZeroNil. A hasher takes a value as it is in a manifest. An absent
field is Go's zero value and is left out, and so is the zero value of a field that is not a pointer. An empty list or
map that is present is not a zero value. Equal items of a list cancel each other out.
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
    """A field of a Go struct: its name in manifests, its name in Go, and the hasher of its value.

    `zero` is the value that counts as absent, None for a pointer, a list or a map, for which only null does.
    """

    json: str
    name: str
    hasher: Hasher
    zero: object = None


def struct(name: str, *fields: Field) -> Hasher:
    """Return a hasher for structs of this Go type, with their fields in Go's order."""

    def hashed(value: Mapping[str, Any]) -> int:
        total = text(name)
        for field in fields:
            item = value.get(field.json)
            if item is not None and item != field.zero:
                total = _bytes8(total ^ _pair(text(field.name), field.hasher(item)))
        return total

    return hashed


def slice_of(hasher: Hasher) -> Hasher:
    """Return a hasher for lists, which are hashed as sets."""

    def hashed(items: list[Any]) -> int:
        total = 0
        for item in items:
            total ^= hasher(item)
        return total

    return hashed


def map_of(hasher: Hasher) -> Hasher:
    """Return a hasher for maps with text as keys."""

    def hashed(items: Mapping[str, Any]) -> int:
        total = 0
        for key, item in items.items():
            total ^= _pair(text(key), hasher(item))
        return _bytes8(total)

    return hashed


@lru_cache(maxsize=1024)
def text(value: str) -> int:
    """Hash a string. Half of a surrogate pair counts as U+FFFD, which Go's decoder replaces it with."""
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
