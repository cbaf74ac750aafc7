"""Cheaper bins for what the nodes of a plan hold."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le

from nodesmith.decisions.packing.plan import Basket
from nodesmith.decisions.packing.problem import Bin


def shrink(basket: Basket, bins: Sequence[Bin]) -> None:
    """Put what each node holds into the cheapest bin that holds it."""
    ordered = sorted(bins, key=lambda b: (b.price, b.key))
    axes = range(len(bins[0].room))
    for _ in range(len(basket.bought)):
        bin_, counts, repeats = basket.give_back(0)
        mask = sum(1 << i for i, n in enumerate(counts) if n)
        size = [
            sum(i.size[axis] * n for i, n in zip(basket.items, counts, strict=True) if n) for axis in axes
        ]
        for candidate in ordered:
            if candidate.price >= bin_.price:
                break
            if (
                candidate.admits & mask == mask
                and all(map(le, size, candidate.room))
                and basket.spending.affords(candidate) >= repeats
            ):
                bin_ = candidate
                break
        basket.buy(bin_, counts, repeats)
