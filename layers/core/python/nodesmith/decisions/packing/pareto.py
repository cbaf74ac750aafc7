"""Bins that could never be the better choice, left out before the search."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.decisions.packing.problem import Bin, Vector


def undominated(bins: Iterable[Bin]) -> list[Bin]:
    """Give the bins that no other equals in everything and beats in something, cheapest first.

    A bin is dominated by one that admits the same items or more, has as much room or more, and costs no more, both
    drawing on the same purse.
    """
    kept: dict[int, list[Bin]] = {}
    cheapest = _cheapest_of_equals(bins)
    for candidate in sorted(cheapest, key=lambda b: (b.price, tuple(-r for r in b.room), b.key)):
        rivals = kept.setdefault(candidate.purse, [])
        if not any(_dominates(rival, candidate) for rival in rivals):
            rivals.append(candidate)
    return sorted((b for rivals in kept.values() for b in rivals), key=lambda b: (b.price, b.key))


def _cheapest_of_equals(bins: Iterable[Bin]) -> list[Bin]:
    best: dict[tuple[int, int, Vector, Vector], Bin] = {}
    for candidate in bins:
        same = (candidate.purse, candidate.admits, candidate.room, candidate.cost)
        known = best.get(same)
        if known is None or (candidate.price, candidate.key) < (known.price, known.key):
            best[same] = candidate
    return list(best.values())


def _dominates(rival: Bin, candidate: Bin) -> bool:
    """`rival` is known to cost no more."""
    if candidate.admits & ~rival.admits:
        return False
    for mine, theirs in zip(candidate.room, rival.room, strict=True):
        if mine > theirs:
            return False
    return all(mine >= theirs for mine, theirs in zip(candidate.cost, rival.cost, strict=True))
