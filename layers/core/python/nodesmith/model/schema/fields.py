"""The building blocks from which kinds are described: plain data, read by `reading` and by `crds`.

Each rule is written twice, in CEL for the API server and in Python for nodesmith; a test compares the two. Patterns are
anchored and mean the same to RE2 and to Python's re. The classes are named tuples because every invocation imports this
module, and a dataclass takes ten times as long to define.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

INT32 = 2**31 - 1
INT64 = 2**63 - 1


class Rule(NamedTuple):
    """A condition on one value, which is `self` in CEL and the argument of `check`."""

    cel: str
    """Empty if the API server does not enforce the rule."""
    message: str
    """What would be right."""
    check: Callable[[Any], bool] | None
    """Returns whether the rule holds. None for a rule about a change, which only the API server sees."""
    advise: Callable[[Any], str | None] | None = None
    """Returns a better message for a value that breaks the rule, None for `message`."""
    fatal: bool = True
    field: str = ""
    """The field of `self` to report, if it is more specific than the whole value."""


class Text(NamedTuple):
    """A string."""

    doc: str = ""
    pattern: str = ""
    example: str = ""
    """Shown if a value does not match the pattern."""
    enum: tuple[str, ...] = ()
    min_length: int = 0
    max_length: int | None = None
    default: str | None = None
    format: str = ""
    rules: tuple[Rule, ...] = ()


class Integer(NamedTuple):
    """A whole number. `minimum` and `maximum` are inclusive."""

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
    """A list. `unique_by` names the field by which the API server merges items."""

    of: Field
    doc: str = ""
    min_items: int = 0
    max_items: int | None = None
    unique_by: str = ""
    atomic: bool = False
    default: list[object] | None = None
    rules: tuple[Rule, ...] = ()


class Map(NamedTuple):
    """A map with free keys, whose values are all of one kind."""

    of: Field
    doc: str = ""
    keys: Text | None = None
    max_entries: int | None = None
    default: None = None
    rules: tuple[Rule, ...] = ()


class Object(NamedTuple):
    """A map with named fields. Unknown fields are kept in an `open` object, and reported and dropped in any other."""

    fields: Mapping[str, Field]
    doc: str = ""
    required: tuple[str, ...] = ()
    open: bool = False
    default: Mapping[str, object] | None = None
    rules: tuple[Rule, ...] = ()


Field: TypeAlias = Text | Integer | Boolean | Quantity | Array | Map | Object


class Kind(NamedTuple):
    """An API kind in the version that is stored."""

    group: str
    name: str
    plural: str
    spec: Object
    doc: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion as manifests write it."""
        return f"{self.group}/{self.version}"
