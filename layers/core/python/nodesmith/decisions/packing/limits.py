"""What is left to spend."""

from __future__ import annotations

from operator import gt

from nodesmith.decisions.packing.problem import Bin, Limits, Vector

UNLIMITED = 2**62


class RemainingLimits:
    """The purses, less what is spent."""

    def __init__(self, limits: Limits) -> None:
        self.limits: dict[int, Vector] = dict(limits)

    def affords(self, candidate: Bin) -> int:
        """Return how many of a bin its purse pays for; UNLIMITED without one.

        Overdrawn in anything, it pays for none.
        """
        limit = self.limits.get(candidate.limit)
        if limit is None:
            return UNLIMITED
        if any(map(gt, candidate.cost, limit)):
            return 0
        paid = [have // cost for have, cost in zip(limit, candidate.cost, strict=True) if cost]
        return min(paid, default=UNLIMITED)

    def spend(self, candidate: Bin, number: int) -> None:
        """Pay for so many of a bin; less than nothing gives back."""
        limit = self.limits.get(candidate.limit)
        if limit is not None:
            self.limits[candidate.limit] = tuple(
                have - number * cost for have, cost in zip(limit, candidate.cost, strict=True)
            )
