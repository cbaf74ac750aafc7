"""The plan for many things of few kinds: column generation, rounding, and what is then left over."""

from __future__ import annotations

from collections.abc import Sequence

from nodesmith.decisions.packing.basket import Basket
from nodesmith.decisions.packing.columns import Column, mix
from nodesmith.decisions.packing.problem import Bin
from nodesmith.decisions.packing.rounding import rounded


def buy_by_columns(basket: Basket, bins: Sequence[Bin], first: Basket, most_steps: int) -> None:
    """Buy for what is left, starting from the fillings of another plan for the same."""
    numbers = {b.key: n for n, b in enumerate(bins)}
    columns = [Column(numbers[b.key], counts) for b, counts, _ in first.bought]
    mixed = mix(basket.items, bins, basket.spending.purses, columns, most_steps)
    basket.steps += mixed.steps
    for column, amount in rounded(basket.items, bins, basket.spending.purses, mixed):
        basket.buy(bins[column.bin], column.counts, amount)
