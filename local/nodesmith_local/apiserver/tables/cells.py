"""Columns of `kubectl get`, and helpers that build most of their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from nodesmith_formats.kubernetes.objects import View, dig, name_of
from nodesmith_formats.kubernetes.selectors import selector_text
from nodesmith_local.apiserver.tables.ages import UNKNOWN, age
from nodesmith_local.apiserver.tables.jsonpaths import values_at

Cell: TypeAlias = Callable[[View, datetime], Any]
NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Priority 1 is shown by `-o wide` only."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""


def printer_cell(path: str, kind: str) -> Cell:
    """Return the cell function of a CRD's printer column."""

    def cell(obj: View, now: datetime) -> Any:
        found = values_at(obj, path)
        if not found or found[0] is None:
            return None if kind != "date" else UNKNOWN
        if kind == "date":
            return age(found[0], now)
        if kind == "string":
            return ",".join(_text(value) for value in found)
        return found[0]

    return cell


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def at(name: str, *path: str | int, kind: str = "string", empty: Any = NONE, priority: int = 0) -> Column:
    """Return a column that shows the value at `path`, or `empty` where there is none."""

    def cell(obj: View, _: datetime) -> Any:
        value = dig(obj, *path)
        return empty if value in (None, "") else (_text(value) if kind == "string" else value)

    return Column(name, cell, kind, priority)


def number(name: str, *path: str | int) -> Column:
    """Return a column that shows a number; a missing value counts as zero."""
    return at(name, *path, kind="integer", empty=0)


NAME = Column("Name", lambda obj, _: name_of(obj), format="name")
AGE = Column("Age", lambda obj, now: age(dig(obj, "metadata", "creationTimestamp"), now))


def containers(field: str, *path: str) -> Cell:
    """Return a cell function that joins one field of all containers of the pod spec at `path`."""
    return lambda obj, _: (
        ",".join(str(container.get(field, "")) for container in dig(obj, *path, "containers") or ()) or NONE
    )


def _selector(obj: View, _: datetime) -> str:
    selector = dig(obj, "spec", "selector")
    return selector_text(selector) or NONE if isinstance(selector, Mapping) else NONE


TEMPLATE = ("spec", "template", "spec")
WIDE = (
    Column("Containers", containers("name", *TEMPLATE), priority=1),
    Column("Images", containers("image", *TEMPLATE), priority=1),
)
SELECTOR = Column("Selector", _selector, priority=1)


def ratio(top: tuple[str, ...], bottom: tuple[str, ...]) -> Cell:
    """Return a cell function that shows a ratio such as `2/3`."""
    return lambda obj, _: f"{dig(obj, *top) or 0}/{dig(obj, *bottom) or 0}"
