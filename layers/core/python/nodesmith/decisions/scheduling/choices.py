"""Choices: what a decision settles before it is known what everything costs, and may settle otherwise next time.

Which shape is placed first, which domain comes first, how many pods a room gets: each choice is sound, and what it
costs shows when everything is bought. Whoever chooses names the choice and its options, the usual one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from nodesmith.decisions.scheduling.demands import Demand

_T = TypeVar("_T")
Name = tuple[object, ...]
Script = Mapping[Name, int]
"""by name of a choice, the number of the option that is taken instead of the usual one"""
_WITHOUT = "without"
LAST = "last"
"""the kind of choice whether a shape is placed after all others; it only helps where pods find no place"""


class Choices:
    """The choices of one decision, made by a script; `met` has the number of options of each, in order of coming."""

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
        """Return things in their order, but for the one that is to come first."""
        ordered = list(things)
        picked = self.pick(name, len(ordered))
        return [ordered[picked], *ordered[:picked], *ordered[picked + 1 :]] if picked else ordered

    def one(self, name: Name, things: Iterable[_T]) -> _T | None:
        """Return the one thing that is preferred, usually none."""
        ordered = list(things)
        picked = self.pick(name, len(ordered) + 1)
        return ordered[picked - 1] if picked else None

    def some(self, name: Name, count: int) -> int:
        """Return how many of so many are had: all, none, all but one, or one."""
        if not count:
            return 0
        options: Sequence[int] = tuple(dict.fromkeys((count, 0, count - 1, 1)))
        return options[self.pick(name, len(options))]

    def used(self, source: str, demand: Demand) -> None:
        """Note that nodes for a demand were bought where others may need them more: it might do without."""
        self.met.setdefault(_without(source, demand), 2)

    def bars(self, source: str, demand: Demand) -> bool:
        """Return whether a demand has to do without a source of nodes."""
        return _without(source, demand) in self.script

    @property
    def barred(self) -> frozenset[Name]:
        """What is to be done without."""
        return frozenset(name for name in self.script if name[0] == _WITHOUT)


def _without(source: str, demand: Demand) -> Name:
    return _WITHOUT, source, demand.shape, demand.pins
