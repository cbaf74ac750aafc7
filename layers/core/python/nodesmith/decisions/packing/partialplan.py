"""A plan in the making: what is bought so far, what is left to pack and to spend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import fsum

from nodesmith.decisions.packing.limits import RemainingLimits
from nodesmith.decisions.packing.problem import Bin, Item, Limits, Vector

Bought = tuple[Bin, Vector, int]
Holds = tuple[tuple[int, int], ...]


class PartialPlan:
    """`bought` are bins, how many of each item each holds, and how often; `left` and `remaining` what remains."""

    def __init__(self, items: Sequence[Item], limits: Limits, steps: int = 0) -> None:
        self.items = items
        self.bought: list[Bought] = []
        self.left = [item.count for item in items]
        self.remaining = RemainingLimits(limits)
        self.steps = steps

    @property
    def price(self) -> float:
        return fsum(bin_.price * repeats for bin_, _, repeats in self.bought)

    @property
    def rank(self) -> tuple[int, float]:
        """What makes a basket the better one when it is less: what it leaves, then its price."""
        return sum(self.left), self.price

    def repeats(self, counts: Vector) -> int:
        """Return how many nodes what is left fills with these."""
        return min([have // count for have, count in zip(self.left, counts, strict=True) if count], default=0)

    def buy(self, candidate: Bin, counts: Vector, repeats: int) -> None:
        """Buy nodes for these, as many as the purse pays for and something is left for; the last may be less full."""
        wanted = min(repeats, self.remaining.affords(candidate))
        while wanted > 0 and any(counts := tuple(map(min, counts, self.left))):
            number = min(wanted, self.repeats(counts))
            self._change(candidate, counts, number)
            self.bought.append((candidate, counts, number))
            wanted -= number

    def give_back(self, number: int) -> Bought:
        """Undo purchase `number`."""
        candidate, counts, repeats = bought = self.bought.pop(number)
        self._change(candidate, counts, -repeats)
        return bought

    def _change(self, candidate: Bin, counts: Vector, number: int) -> None:
        self.remaining.spend(candidate, number)
        self.left = [have - number * count for have, count in zip(self.left, counts, strict=True)]


def holds(counts: Vector) -> Holds:
    """Return a filling as pairs of item and number, without what is not in it."""
    return tuple(compress(enumerate(counts), counts))
