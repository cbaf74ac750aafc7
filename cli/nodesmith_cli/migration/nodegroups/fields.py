"""The account of a group's fields: what each of them became, and why, or why it has no equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.problems import at

Path = tuple[str, ...]
_LONGEST_VALUE = 200
UNKNOWN = "this release does not know the field: check whether the nodes need it"
"""The remedy of a field that nothing accounts for."""


class Outcome(StrEnum):
    """The outcome for a field."""

    KEPT = "kept"
    CHANGED = "changed"
    NO_EQUAL = "no equal"


@dataclass(frozen=True, slots=True)
class FieldReport:
    """One field of a group. `explanation` is the reason of a change, or the remedy for a field without an equal.

    `is_quiet` is True if nothing has to be done about it, so that tables leave it out.
    """

    field: str
    value: Any
    outcome: Outcome
    became: str = ""
    explanation: str = ""
    is_quiet: bool = False


class Account:
    """The fields of one group, by source (`nodegroup`, `autoScalingGroup`, `launchTemplate`), and what became of each.

    A path ends at a value, or at a map or list that one entry covers as a whole.
    """

    def __init__(self, sources: Mapping[str, Mapping[str, Any]]) -> None:
        self._sources = sources
        self._reports: dict[Path, FieldReport] = {}

    def get(self, *path: str) -> Any:
        """Return the value at a path, or None."""
        value: Any = self._sources
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def record_kept(self, path: Path, became: str, reason: str = "") -> None:
        """Record that a field has the same effect as before. Absent fields are ignored, here and below."""
        self._report(path, Outcome.KEPT, became, reason, is_quiet=True)

    def changed(self, path: Path, became: str, reason: str, *, is_quiet: bool = False) -> None:
        """Record that a field's effect differs, and why."""
        self._report(path, Outcome.CHANGED, became, reason, is_quiet=is_quiet)

    def lost(self, path: Path, remedy: str, *, is_quiet: bool = False) -> None:
        """Record that a field has no equal, and what to do about it."""
        self._report(path, Outcome.NO_EQUAL, "", remedy, is_quiet=is_quiet)

    def about(self, paths: Mapping[Path, str]) -> None:
        """Record fields that describe the group's identity or state, each with its meaning."""
        for path, what in paths.items():
            self.lost(path, f"{what}: nothing to do", is_quiet=True)

    def replace_record(self, path: Path, outcome: Outcome, reason: str) -> None:
        """Replace what was recorded about a field."""
        self._reports.pop(path, None)
        self._report(path, outcome, "", reason, is_quiet=False)

    def all(self) -> list[FieldReport]:
        """Return all fields in their order. Those that nothing has accounted for have no equal."""
        field_reports: list[FieldReport] = []
        seen: set[Path] = set()
        for path in self._leaves():
            covering = next((path[:n] for n in range(1, len(path) + 1) if path[:n] in self._reports), None)
            if covering is None:
                field_reports.append(
                    FieldReport(_text(path), _short(self.get(*path)), Outcome.NO_EQUAL, "", UNKNOWN)
                )
            elif covering not in seen:
                seen.add(covering)
                field_reports.append(self._reports[covering])
        return field_reports

    def _report(self, path: Path, outcome: Outcome, became: str, reason: str, *, is_quiet: bool) -> None:
        value = self.get(*path)
        if value is not None and path not in self._reports:
            self._reports[path] = FieldReport(_text(path), _short(value), outcome, became, reason, is_quiet)

    def _leaves(self) -> Iterator[Path]:
        for source, fields in self._sources.items():
            yield from _leaves((source,), fields)


def _leaves(path: Path, value: Any) -> Iterator[Path]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves((*path, str(name)), inner)
    elif value not in (None, {}, []):
        yield path


def _text(path: Path) -> str:
    field = path[0]
    for name in path[1:]:
        field = at(field, name)
    return field


def _short(value: Any) -> Any:
    """Return a value as JSON data. Long text, such as user data, is cut."""
    if isinstance(value, Mapping):
        return {str(name): _short(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_short(inner) for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return f"{value[:_LONGEST_VALUE]}…"
    return value
