"""Bins that could never be the better choice, left out before the search."""

from __future__ import annotations

from collections.abc import Iterable
from operator import ge, le

from nodesmith.decisions.packing.problem import Bin, Vector


def undominated(bins: Iterable[Bin]) -> list[Bin]:
    """Give the bins that no other equals in everything and beats in something, cheapest first.

    A bin is dominated by one that admits the same items or more, has as much room or more, and costs no more, both
    drawing on the same purse.
    """
    cheapest = _cheapest_of_equals(bins)
    kept: dict[tuple[int, int], _Rivals] = {(b.purse, b.admits): _Rivals() for b in cheapest}
    rivals_of = {
        (purse, admits): [r for (p, a), r in kept.items() if p == purse and not admits & ~a]
        for purse, admits in kept
    }
    for candidate in sorted(cheapest, key=lambda b: (b.price, tuple(-r for r in b.room), b.key)):
        group = candidate.purse, candidate.admits
        if not any(rivals.dominate(candidate) for rivals in rivals_of[group]):
            kept[group].add(candidate)
    return sorted((b for group in kept.values() for b in group.bins), key=lambda b: (b.price, b.key))


class _Rivals:
    """Bins kept so far that admit the same, and the largest room that any of them has of each resource."""

    def __init__(self) -> None:
        self.bins: list[Bin] = []
        self._largest: Vector | None = None

    def add(self, bin_: Bin) -> None:
        self.bins.append(bin_)
        self._largest = bin_.room if self._largest is None else tuple(map(max, self._largest, bin_.room))

    def dominate(self, candidate: Bin) -> bool:
        """Tell whether one of these, all known to cost no more, is as good. The nearest in price is the likeliest."""
        room, cost = candidate.room, candidate.cost
        if self._largest is None or not all(map(le, room, self._largest)):
            return False
        return any(
            all(map(le, room, rival.room)) and all(map(ge, cost, rival.cost)) for rival in reversed(self.bins)
        )


def _cheapest_of_equals(bins: Iterable[Bin]) -> list[Bin]:
    best: dict[tuple[int, int, Vector, Vector], Bin] = {}
    for candidate in bins:
        same = (candidate.purse, candidate.admits, candidate.room, candidate.cost)
        known = best.get(same)
        if known is None or (candidate.price, candidate.key) < (known.price, known.key):
            best[same] = candidate
    return list(best.values())
