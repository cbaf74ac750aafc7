"""Lots: the order of what is equal, or only looks so before the whole plan is known.

Which of two domains comes first, which shape is placed first, which room is filled: each choice is sound, and what it
costs shows when everything is bought. So a decision may be made several times, each time by other lots, and the best
kept. A lot is drawn from its number and a name alone: the same on every machine, whatever was asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TypeVar

_T = TypeVar("_T")
_EVERY = 4


class Lots:
    """One way to choose. Number 0 takes things in the order they are given, and passes nothing over.

    `asked` tells whether there was anything to choose: if not, other lots would come to the same.
    """

    __slots__ = ("asked", "number")

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.asked = False

    def order(self, things: Iterable[_T], name: Callable[[_T], object]) -> list[_T]:
        """Give things in the order of this number."""
        ordered = list(things)
        if len(ordered) > 1:
            self.asked = True
            if self.number:
                ordered.sort(key=lambda thing: self._draw(name(thing)))
        return ordered

    def passes_over(self, *names: object) -> bool:
        """Tell whether to do without something that would do, for others may need it more: one in four, if at all."""
        self.asked = True
        return self.bars and self._draw(names) % _EVERY == 0

    @property
    def bars(self) -> bool:
        """Whether anything is passed over by this number."""
        return self.number % 2 == 1

    @property
    def fills_up(self) -> bool:
        """Whether a spread goes to one domain as long as its skew allows, not to the emptiest: fewer nodes may do."""
        return self.number % 3 == 2

    def _draw(self, name: object) -> int:
        return int.from_bytes(blake2b(f"{self.number}/{name}".encode(), digest_size=8).digest(), "big")
