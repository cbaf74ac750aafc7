"""Immutable JSON data: mappings that can be hashed and shared, and data that is kept as canonical text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

V_co = TypeVar("V_co", covariant=True)


class FrozenMap(Mapping[str, V_co]):
    """A mapping that never changes. It equals a mapping with the same items, and is hashable if its values are."""

    __slots__ = ("_items",)
    _items: Mapping[str, V_co]

    def __init__(self, items: Mapping[str, V_co] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: str) -> V_co:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"


NO_ITEMS: FrozenMap[str] = FrozenMap()
_PLAIN = frozenset({str, int, float, bool, type(None)})


def freeze(value: object) -> object:
    """Return JSON data as hashable data: objects as FrozenMap, arrays as tuples."""
    if isinstance(value, Mapping):
        return FrozenMap({str(key): freeze(item) for key, item in value.items()})
    return tuple(freeze(item) for item in value) if isinstance(value, (list, tuple)) else value


def thaw(value: object) -> object:
    """Return frozen data as plain dicts and lists again, ready for JSON."""
    if type(value) in _PLAIN:  # the most frequent case, and checks against the Mapping ABC are slow
        return value
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, (list, tuple)) else value


class CanonicalText(Mapping[str, Any]):
    """JSON data that `canonical` takes as it is, because `text` is canonical. An object is parsed when it is read."""

    __slots__ = ("_parsed", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parsed: dict[str, Any] | None = None

    def __getitem__(self, key: str) -> Any:
        return self._object()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._object())

    def __len__(self) -> int:
        return len(self._object())

    def _object(self) -> dict[str, Any]:
        if self._parsed is None:
            self._parsed = json.loads(self.text)
        return self._parsed


def canonical(value: object) -> bytes:
    """Return JSON data as canonical bytes, which are equal for equal data."""
    return canonical_text(value).encode()


def canonical_text(value: object) -> str:
    """Return JSON data as canonical text."""
    if isinstance(value, CanonicalText):
        return value.text
    if isinstance(value, dict) and any(isinstance(item, (CanonicalText, dict)) for item in value.values()):
        items = (f"{canonical_text(key)}:{canonical_text(value[key])}" for key in sorted(value))
        return f"{{{','.join(items)}}}"
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
