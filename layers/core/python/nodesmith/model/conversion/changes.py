"""The report of a conversion: what happened to each field."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Fate(StrEnum):
    """What happened to a field, from harmless to fatal."""

    MOVED = "moved"
    """has the same meaning in another place or spelling"""
    ADDED = "added"
    """was implied, and must be stated today"""
    REPAIRED = "repaired"
    """was wrong, but its intended meaning is certain"""
    ALTERED = "altered"
    """carried over, but does not work exactly as it did"""
    DROPPED = "dropped"
    """has no effect"""
    REFUSED = "refused"
    """needs a decision by the author; the object cannot be used until then"""


QUIET = frozenset({Fate.MOVED, Fate.ADDED})
"""Fates that do not affect pods."""


class Change(NamedTuple):
    """One finding. `number` is the index of the object in the input, and `field` is a path in that object."""

    number: int
    object: str
    """Kind and name as given: `Provisioner/default`."""
    field: str
    fate: Fate
    why: str
    """Follows the field in a sentence: `is read as karpenter.k8s.aws/instance-category`."""

    @property
    def is_quiet(self) -> bool:
        """True if the change does not affect pods and needs no attention."""
        return self.fate in QUIET

    def __str__(self) -> str:
        return f"{self.object}: {self.field} {self.why}"


class Origin(NamedTuple):
    """Where a field of a converted object comes from: the index of the input object, and a path in it."""

    number: int
    field: str


class Converted(NamedTuple):
    """A converted object. `number` is the index of the main input object; `origins` has the origin of each field."""

    number: int
    manifest: Mapping[str, Any]
    origins: Mapping[str, Origin] = {}
    """Field of `manifest` → origin. Fields that are neither listed nor inside a listed one have not moved."""

    def origin(self, field: str) -> Origin | None:
        """Return the origin of a field, derived from the closest listed field around it; None if it was added."""
        ends = [at for at in range(len(field), 0, -1) if at == len(field) or field[at] in ".["]
        for end in ends:
            known = self.origins.get(field[:end])
            if known is not None:
                return Origin(known.number, known.field + field[end:]) if known.field else None
        return Origin(self.number, field)


class Conversion(NamedTuple):
    """All objects in the order of the input, with old ones converted, and all changes."""

    objects: tuple[Converted, ...]
    changes: tuple[Change, ...] = ()
