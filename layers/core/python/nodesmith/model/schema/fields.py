"""The vocabulary in which kinds are described: plain data, read by `reading` and by `crds`.

A rule is said twice, in CEL for the API server and in Python for us; a test holds the two against each other.
Patterns are anchored and mean the same to RE2 and to Python's re. Named tuples, since every invocation imports this
room and a dataclass takes ten times as long to define.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

INT32 = 2**31 - 1
INT64 = 2**63 - 1


class Rule(NamedTuple):
    """A condition on one value, which is `self` in CEL and the argument of `check`."""

    cel: str
    """Empty where the API server is not to enforce it."""
    message: str
    """What would be right."""
    check: Callable[[Any], bool] | None
    """Tells whether the rule holds; None where it is about a change, which only the API server sees."""
    advise: Callable[[Any], str | None] | None = None
    """Gives a better message for a value that breaks the rule."""
    fatal: bool = True
    field: str = ""
    """The field of `self` that the rule is about, where that says more than the whole."""


class Text(NamedTuple):
    """A string."""

    doc: str = ""
    pattern: str = ""
    example: str = ""
    """Shown to those who miss the pattern."""
    enum: tuple[str, ...] = ()
    min_length: int = 0
    max_length: int | None = None
    default: str | None = None
    format: str = ""
    rules: tuple[Rule, ...] = ()


class Integer(NamedTuple):
    """A whole number, both ends included."""

    doc: str = ""
    minimum: int | None = None
    maximum: int = INT64
    default: int | None = None


class Boolean(NamedTuple):
    """True or false."""

    doc: str = ""
    default: None = None


class Quantity(NamedTuple):
    """An amount that is not negative: a number or text such as `500m` or `2Gi`."""

    doc: str = ""
    default: None = None


class Array(NamedTuple):
    """A list; `unique_by` names the item's field by which the API server merges."""

    of: Field
    doc: str = ""
    min_items: int = 0
    max_items: int | None = None
    unique_by: str = ""
    atomic: bool = False
    default: list[object] | None = None
    rules: tuple[Rule, ...] = ()


class Map(NamedTuple):
    """Free keys, all with the same kind of value."""

    of: Field
    doc: str = ""
    keys: Text | None = None
    max_entries: int | None = None
    default: None = None
    rules: tuple[Rule, ...] = ()


class Object(NamedTuple):
    """Named fields. An `open` object keeps those it does not know, others report and drop them."""

    fields: Mapping[str, Field]
    doc: str = ""
    required: tuple[str, ...] = ()
    open: bool = False
    default: Mapping[str, object] | None = None
    rules: tuple[Rule, ...] = ()


Field: TypeAlias = Text | Integer | Boolean | Quantity | Array | Map | Object


class Kind(NamedTuple):
    """A kind of the API in the version that is stored."""

    group: str
    name: str
    plural: str
    spec: Object
    doc: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """As manifests write it."""
        return f"{self.group}/{self.version}"
