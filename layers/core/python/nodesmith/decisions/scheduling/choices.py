"""Choices: decisions made before their cost is known, which another attempt may make differently.

Which shape is placed first, which domain comes first, how many pods a node gets: every option is sound, but its cost
shows only when everything is bought. The caller names each choice and lists its options, the usual one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from nodesmith.decisions.scheduling.demands import Demand

_T = TypeVar("_T")
Name = tuple[object, ...]
Script = Mapping[Name, int]
"""The number of the option to take instead of the usual one, by name of the choice."""
_WITHOUT = "without"
LAST = "last"
"""The kind of choice that places a shape after all others. It only helps where pods find no place."""


class Choices:
    """The choices of one attempt, made by a script.

    `met` has the number of options of each choice, in the order encountered.
    """

    __slots__ = ("met", "script")

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or {}
        self.met: dict[Name, int] = {}

    def pick(self, name: Name, options: int) -> int:
        """Return the number of the option to take."""
        if options < 2:
            return 0
        self.met.setdefault(name, options)
        picked = self.script.get(name, 0)
        return picked if picked < options else 0

    def first(self, name: Name, things: Iterable[_T]) -> list[_T]:
        """Return `things` in their order, except for the one that the script puts first."""
        ordered = list(things)
        picked = self.pick(name, len(ordered))
        return [ordered[picked], *ordered[:picked], *ordered[picked + 1 :]] if picked else ordered

    def one(self, name: Name, things: Iterable[_T]) -> _T | None:
        """Return the one thing that the script selects; None usually."""
        ordered = list(things)
        picked = self.pick(name, len(ordered) + 1)
        return ordered[picked - 1] if picked else None

    def some(self, name: Name, count: int) -> int:
        """Return how many of `count` to take: all usually; by script none, all but one, or one."""
        if not count:
            return 0
        options: Sequence[int] = tuple(dict.fromkeys((count, 0, count - 1, 1)))
        return options[self.pick(name, len(options))]

    def used(self, source: str, demand: Demand) -> None:
        """Note that nodes for a demand were bought from a source that others may need more, so it might do without."""
        self.met.setdefault(_without(source, demand), 2)

    def bars(self, source: str, demand: Demand) -> bool:
        """Return whether a demand must do without a source of nodes."""
        return _without(source, demand) in self.script

    @property
    def barred(self) -> frozenset[Name]:
        """The names of all scripted choices that make a demand do without a source."""
        return frozenset(name for name in self.script if name[0] == _WITHOUT)


def _without(source: str, demand: Demand) -> Name:
    return _WITHOUT, source, demand.shape, demand.pins
