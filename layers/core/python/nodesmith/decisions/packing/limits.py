"""What is left to spend."""

from __future__ import annotations

from operator import gt

from nodesmith.decisions.packing.problem import Bin, Purses, Vector

UNLIMITED = 2**62


class Spending:
    """The purses, less what is spent."""

    def __init__(self, purses: Purses) -> None:
        self.purses: dict[int, Vector] = dict(purses)

    def affords(self, candidate: Bin) -> int:
        """Return how many of a bin its purse pays for; UNLIMITED without one.

        Overdrawn in anything, it pays for none.
        """
        purse = self.purses.get(candidate.purse)
        if purse is None:
            return UNLIMITED
        if any(map(gt, candidate.cost, purse)):
            return 0
        paid = [have // cost for have, cost in zip(purse, candidate.cost, strict=True) if cost]
        return min(paid, default=UNLIMITED)

    def spend(self, candidate: Bin, number: int) -> None:
        """Pay for so many of a bin; less than nothing gives back."""
        purse = self.purses.get(candidate.purse)
        if purse is not None:
            self.purses[candidate.purse] = tuple(
                have - number * cost for have, cost in zip(purse, candidate.cost, strict=True)
            )
