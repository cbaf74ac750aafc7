"""What became of a field: the report of a conversion, one entry a finding."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Fate(StrEnum):
    """What became of a field, from harmless to hopeless."""

    MOVED = "moved"
    """means the same today, in another place or spelling"""
    ADDED = "added"
    """was understood without saying, and has to be said today"""
    REPAIRED = "repaired"
    """was wrong, and what was meant is beyond doubt"""
    ALTERED = "altered"
    """carried over, but does not work exactly as it did"""
    DROPPED = "dropped"
    """has no effect"""
    REFUSED = "refused"
    """has to be decided by whoever wrote it; the object is of no use until then"""


QUIET = frozenset({Fate.MOVED, Fate.ADDED})
"""Fates that change nothing for the pods."""


class Change(NamedTuple):
    """One finding. `number` is the place of the object in what was given, `field` a path in it."""

    number: int
    object: str
    """Kind and name as given: `Provisioner/default`."""
    field: str
    fate: Fate
    why: str
    """Follows the field in a sentence: `is read as karpenter.k8s.aws/instance-category`."""

    @property
    def is_quiet(self) -> bool:
        """True where nobody needs to know before the nodes come."""
        return self.fate in QUIET

    def __str__(self) -> str:
        return f"{self.object}: {self.field} {self.why}"


class Origin(NamedTuple):
    """Where a field of an object of today comes from."""

    number: int
    field: str


class Converted(NamedTuple):
    """An object of today. `number` is the given object that it comes from first, `origins` say so field by field."""

    number: int
    manifest: Mapping[str, Any]
    origins: Mapping[str, Origin] = {}
    """By field of `manifest`; what is not named, nor inside of what is, stands where it stood."""

    def origin(self, field: str) -> Origin | None:
        """Return where a field was, or the nearest field that it is in; None for what was added."""
        ends = [at for at in range(len(field), 0, -1) if at == len(field) or field[at] in ".["]
        for end in ends:
            known = self.origins.get(field[:end])
            if known is not None:
                return Origin(known.number, known.field + field[end:]) if known.field else None
        return Origin(self.number, field)


class Conversion(NamedTuple):
    """All objects, old ones in their form of today, in the order given; and everything worth saying."""

    objects: tuple[Converted, ...]
    changes: tuple[Change, ...] = ()
