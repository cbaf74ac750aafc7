"""Collect the problems of one object, each short enough to read."""

from __future__ import annotations

from collections.abc import Mapping

from nodesmith.model.apimachinery.problems import Problem
from nodesmith.model.apimachinery.spelling import did_you_mean

_MOST_PROBLEMS = 50
_FEW = 8


class Report:
    """Collects the problems of one object. `fatal` counts those that make it unusable, whether kept or not."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._problems: list[Problem] = []
        self.fatal = 0

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems that were kept, in the order of the fields."""
        return tuple(self._problems)

    @property
    def is_full(self) -> bool:
        """True if further problems would not be kept."""
        return len(self._problems) >= _MOST_PROBLEMS

    def add(self, field: str, found: str, remedy: str, *, fatal: bool = True) -> None:
        """Add a problem. A full report still keeps its first fatal one."""
        if not self.is_full or (fatal and not self.fatal):
            self._problems.append(Problem(self._name, field, found, remedy, fatal))
        self.fatal += fatal


def nearest(name: object, known: tuple[str, ...]) -> str:
    """Suggest a replacement for a name that is not known."""
    hint = did_you_mean(name, known).removeprefix(", ") if isinstance(name, str) else ""
    return hint or (f"use one of {', '.join(known)}" if len(known) <= _FEW else "leave it out")


def at(path: str, key: object) -> str:
    """Return the path of a map's entry: `limits.cpu`, `labels[example.com/team]`."""
    if isinstance(key, str) and len(key) <= 63 and key.isascii() and key.replace("-", "").isalnum():
        return f"{path}.{key}" if path else key
    return f"{path}[{key[:63] if isinstance(key, str) else shown(key)}]"


def shown(value: object) -> str:
    """Return a short description of a value of any size."""
    match value:
        case str():
            return repr(value) if len(value) <= 60 else f"{value[:57]!r}…"
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int() if abs(value) > 2**64:
            return "a number beyond 64 bits"
        case int() | float():
            return repr(value)
        case [] | [_] | [_, _] if all(isinstance(item, str) and len(item) <= 30 for item in value):
            return repr(list(value))
        case list() | tuple():
            return f"a list of {len(value)}"
        case Mapping():
            return f"a map of {len(value)}"
        case _:
            return f"a {type(value).__name__}"
