"""A packing in the making: what is bought so far, what is left to pack and to spend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import gt

from nodesmith.decisions.packing.problem import Bin, Item, Purses, Vector

Bought = tuple[Bin, Vector, int]
_UNLIMITED = 2**62


class Basket:
    """`bought` are bins, how many of each item each holds, and how often; `left` and `purses` what remains."""

    def __init__(self, items: Sequence[Item], purses: Purses) -> None:
        self.items = items
        self.bought: list[Bought] = []
        self.left = [item.count for item in items]
        self.purses = dict(purses)
        self.steps = 0

    @property
    def price(self) -> float:
        return sum(bin_.price * repeats for bin_, _, repeats in self.bought)

    @property
    def rank(self) -> tuple[int, float]:
        """What makes a basket the better one when it is less: what it leaves, then its price."""
        return sum(self.left), self.price

    def affords(self, candidate: Bin) -> int:
        """Tell how many of a bin its purse pays for. One that is overdrawn in anything pays for none."""
        purse = self.purses.get(candidate.purse)
        if purse is None:
            return _UNLIMITED
        if any(map(gt, candidate.cost, purse)):
            return 0
        return min(
            [have // cost for have, cost in zip(purse, candidate.cost, strict=True) if cost] or [_UNLIMITED]
        )

    def repeats(self, counts: Vector) -> int:
        """Tell how many nodes what is left fills with these."""
        return min([have // count for have, count in zip(self.left, counts, strict=True) if count], default=0)

    def buy(self, candidate: Bin, counts: Vector, repeats: int) -> None:
        """Buy nodes for these, as many as the purse pays for and something is left for; the last may be less full."""
        wanted = min(repeats, self.affords(candidate))
        while wanted > 0 and any(counts := tuple(map(min, counts, self.left))):
            number = min(wanted, self.repeats(counts))
            self._take(candidate, counts, number)
            wanted -= number

    def _take(self, candidate: Bin, counts: Vector, number: int) -> None:
        self.bought.append((candidate, counts, number))
        purse = self.purses.get(candidate.purse)
        if purse is not None:
            self.purses[candidate.purse] = tuple(
                have - number * cost for have, cost in zip(purse, candidate.cost, strict=True)
            )
        self.left = [have - number * count for have, count in zip(self.left, counts, strict=True)]

    def give_back(self, number: int) -> Bought:
        """Undo purchase `number`."""
        candidate, counts, repeats = bought = self.bought.pop(number)
        purse = self.purses.get(candidate.purse)
        if purse is not None:
            self.purses[candidate.purse] = tuple(
                have + repeats * cost for have, cost in zip(purse, candidate.cost, strict=True)
            )
        self.left = [have + repeats * count for have, count in zip(self.left, counts, strict=True)]
        return bought


def holds(counts: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Give a filling as pairs of item and number, without what is not in it."""
    counts = tuple(counts)
    return tuple(compress(enumerate(counts), counts))
