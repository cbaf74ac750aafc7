"""Remove bins that can never be the better choice before the search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import ge, le

from nodesmith.decisions.packing.problem import Bin, Vector


def undominated(bins: Iterable[Bin]) -> list[Bin]:
    """Return the bins that no other bin dominates, cheapest first.

    A bin is dominated by another one that admits at least the same items, has at least the same capacity, and costs no
    more in price and of the same limit. Of equal bins, the one with the lowest price and key is kept.
    """
    cheapest = _cheapest_of_equals(bins)
    kept: dict[tuple[int, int], _Rivals] = {(b.limit, b.admits): _Rivals() for b in cheapest}
    rivals_of = {
        (limit, admits): [r for (p, a), r in kept.items() if p == limit and not admits & ~a]
        for limit, admits in kept
    }
    for candidate in sorted(cheapest, key=lambda b: (b.price, tuple(-r for r in b.capacity), b.key)):
        group = candidate.limit, candidate.admits
        if not any(rivals.dominate(candidate) for rivals in rivals_of[group]):
            kept[group].add(candidate)
    return sorted((b for group in kept.values() for b in group.bins), key=lambda b: (b.price, b.key))


class _Rivals:
    """Bins kept so far that admit the same items.

    It keeps the skyline of their cpu and memory: `_cpu` increases, and `_memory`, the most memory of any bin with at
    least that cpu, decreases. The skyline settles most bins that are not dominated without a further comparison.
    """

    def __init__(self) -> None:
        self.bins: list[Bin] = []
        self._cpu: list[int] = []
        self._memory: list[int] = []

    def add(self, bin_: Bin) -> None:
        self.bins.append(bin_)
        cpu, memory = _main(bin_.capacity)
        if not self._have(cpu, memory):
            end = start = bisect_right(self._cpu, cpu)
            while start and self._memory[start - 1] <= memory:
                start -= 1
            self._cpu[start:end], self._memory[start:end] = [cpu], [memory]

    def _have(self, cpu: int, memory: int) -> bool:
        place = bisect_left(self._cpu, cpu)
        return place < len(self._cpu) and self._memory[place] >= memory

    def dominate(self, candidate: Bin) -> bool:
        """Return whether one of these bins, all known to cost no more than the candidate, is as good.

        The nearest in price is the likeliest, so it is tried first.
        """
        capacity, cost = candidate.capacity, candidate.cost
        if not self._have(*_main(capacity)):
            return False
        return any(
            all(map(le, capacity, rival.capacity)) and all(map(ge, cost, rival.cost))
            for rival in reversed(self.bins)
        )


def _main(capacity: Vector) -> tuple[int, int]:
    return capacity[0], capacity[1 % len(capacity)]


def _cheapest_of_equals(bins: Iterable[Bin]) -> list[Bin]:
    best: dict[tuple[int, int, Vector, Vector], Bin] = {}
    for candidate in bins:
        same = (candidate.limit, candidate.admits, candidate.capacity, candidate.cost)
        known = best.get(same)
        if known is None or (candidate.price, candidate.key) < (known.price, known.key):
            best[same] = candidate
    return list(best.values())
