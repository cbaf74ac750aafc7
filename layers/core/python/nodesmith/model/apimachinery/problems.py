"""Problems of user-supplied objects, reported so that their authors can fix them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of one field. A `fatal` problem makes its object unusable, but no other object."""

    object: str
    """Kind and name: `NodePool/default`."""
    field: str
    """Path in the manifest: `spec.template.spec.requirements[0].operator`."""
    found: str
    """The value of the field, shortened."""
    remedy: str
    """What would be right."""
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.object}: {self.field} is {self.found}: {self.remedy}"


class Parsed(NamedTuple, Generic[T_co]):
    """The outcome of reading a manifest: a value, or None if a problem is fatal, and all problems."""

    value: T_co | None
    problems: tuple[Problem, ...] = ()

    @property
    def fatal(self) -> tuple[Problem, ...]:
        """The problems that prevent a value."""
        return tuple(problem for problem in self.problems if problem.fatal)


class ParseOnce(Generic[T_co]):
    """Parses all manifests of a snapshot, each with `parse`, and remembers the results of the last call.

    A decision parses the same manifests half a dozen times, and so does the next decision while nothing has changed. A
    snapshot never changes, so the same tuple always holds the same manifests.
    """

    def __init__(self, parse: Callable[[Mapping[str, object]], Parsed[T_co]]) -> None:
        self._parse = parse
        self._last: tuple[tuple[Mapping[str, object], ...], tuple[Parsed[T_co], ...]] = (), ()

    def __call__(self, manifests: tuple[Mapping[str, object], ...]) -> tuple[Parsed[T_co], ...]:
        """Return the parsed manifests in their order."""
        of, parsed = self._last
        if manifests is not of:
            parsed = tuple(map(self._parse, manifests))
            self._last = manifests, parsed
        return parsed
