"""Replace the nodes of a plan with cheaper bins that hold the same items."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le

from nodesmith.decisions.packing.partialplan import PartialPlan
from nodesmith.decisions.packing.problem import Bin


def downsize(partial: PartialPlan, bins: Sequence[Bin]) -> None:
    """Move the items of each node into the cheapest bin that holds them."""
    ordered = sorted(bins, key=lambda b: (b.price, b.key))
    axes = range(len(bins[0].capacity))
    for _ in range(len(partial.bought)):
        bin_, counts, repeats = partial.give_back(0)
        mask = sum(1 << i for i, n in enumerate(counts) if n)
        size = [
            sum(i.size[axis] * n for i, n in zip(partial.items, counts, strict=True) if n) for axis in axes
        ]
        for candidate in ordered:
            if candidate.price >= bin_.price:
                break
            if (
                candidate.admits & mask == mask
                and all(map(le, size, candidate.capacity))
                and partial.remaining.affords(candidate) >= repeats
            ):
                bin_ = candidate
                break
        partial.buy(bin_, counts, repeats)
