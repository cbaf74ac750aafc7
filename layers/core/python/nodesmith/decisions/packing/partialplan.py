"""A partial plan: what has been bought, what is left to pack, and what remains of the limits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import fsum

from nodesmith.decisions.packing.limits import RemainingLimits
from nodesmith.decisions.packing.problem import Bin, Item, Limits, Vector

Bought = tuple[Bin, Vector, int]
Holds = tuple[tuple[int, int], ...]


class PartialPlan:
    """Bins bought so far, items left to pack, and the remaining limits.

    Each entry of `bought` is a bin, the count of each item that one node holds, and the number of such nodes. `left`
    has the count of each item that is not packed yet, and `remaining` what is left of the limits.
    """

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
        """The number of items left, then the price. The plan with the lower rank is the better one."""
        return sum(self.left), self.price

    def repeats(self, counts: Vector) -> int:
        """Return how many nodes with this pattern the items left can fill."""
        return min([have // count for have, count in zip(self.left, counts, strict=True) if count], default=0)

    def buy(self, candidate: Bin, counts: Vector, repeats: int) -> None:
        """Buy up to `repeats` nodes with this pattern, as far as its limit and the items left allow.

        The last node may hold less than the pattern.
        """
        wanted = min(repeats, self.remaining.affords(candidate))
        while wanted > 0 and any(counts := tuple(map(min, counts, self.left))):
            number = min(wanted, self.repeats(counts))
            self._change(candidate, counts, number)
            self.bought.append((candidate, counts, number))
            wanted -= number

    def give_back(self, number: int) -> Bought:
        """Undo purchase `number` and return it."""
        candidate, counts, repeats = bought = self.bought.pop(number)
        self._change(candidate, counts, -repeats)
        return bought

    def _change(self, candidate: Bin, counts: Vector, number: int) -> None:
        self.remaining.spend(candidate, number)
        self.left = [have - number * count for have, count in zip(self.left, counts, strict=True)]


def holds(counts: Vector) -> Holds:
    """Return a pattern as pairs of item and count, without the items that it does not hold."""
    return tuple(compress(enumerate(counts), counts))
