"""The amounts of the limits that remain."""

from __future__ import annotations

from operator import gt

from nodesmith.decisions.packing.problem import Bin, Limits, Vector

UNLIMITED = 2**62


class RemainingLimits:
    """The limits, less what has been spent."""

    def __init__(self, limits: Limits) -> None:
        self.limits: dict[int, Vector] = dict(limits)

    def affords(self, candidate: Bin) -> int:
        """Return how many of a bin its limit allows; UNLIMITED if the bin has no limit.

        If any amount of the limit is exceeded already, it allows none.
        """
        limit = self.limits.get(candidate.limit)
        if limit is None:
            return UNLIMITED
        if any(map(gt, candidate.cost, limit)):
            return 0
        paid = [have // cost for have, cost in zip(limit, candidate.cost, strict=True) if cost]
        return min(paid, default=UNLIMITED)

    def spend(self, candidate: Bin, number: int) -> None:
        """Charge `number` of a bin to its limit; a negative number gives the amounts back."""
        limit = self.limits.get(candidate.limit)
        if limit is not None:
            self.limits[candidate.limit] = tuple(
                have - number * cost for have, cost in zip(limit, candidate.cost, strict=True)
            )
