"""The plan for many things of few kinds: the cheapest mix of fillings, made whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nodesmith.decisions.packing.basket import Basket
from nodesmith.decisions.packing.columns import Column, Mix, mix
from nodesmith.decisions.packing.enumeration import Fillings, exact_mix, fillings, number_of_fillings
from nodesmith.decisions.packing.problem import Bin
from nodesmith.decisions.packing.rounding import rounded, whole

_MOST_FILLINGS = 200_000
_MOST_COLUMNS = 800
_NEAR_GAP = 2e-3
_TOLERANCE = 1 - 1e-6
_GOOD_ENOUGH = 1.005


def buy_by_columns(basket: Basket, bins: Sequence[Bin], first: Basket, most_steps: int) -> float:
    """Buy for what is left, starting from the fillings of another plan for the same; give a bound, 0 for none."""
    numbers = {b.key: n for n, b in enumerate(bins)}
    columns = [Column(numbers[b.key], counts) for b, counts, _ in first.bought]
    if number_of_fillings(basket.items) > _MOST_FILLINGS:
        _buy_mix(basket, bins, mix(basket.items, bins, basket.spending.purses, columns, most_steps))
        return 0.0
    known = fillings(basket.items, bins)
    mixed, bound = exact_mix(basket.items, bins, known, columns)
    if first.price <= bound * _GOOD_ENOUGH:
        return bound
    return max(bound, _buy_near(basket, bins, known, mixed, first.price - bound))


def _buy_mix(basket: Basket, bins: Sequence[Bin], mixed: Mix) -> None:
    basket.steps += mixed.steps
    _buy(basket, bins, rounded(basket.items, bins, basket.spending.purses, mixed))


def _buy_near(basket: Basket, bins: Sequence[Bin], known: Fillings, mixed: Mix, gap: float) -> float:
    """Buy of all fillings that can be in a better plan, if these are not too many; give the bound then proved.

    A plan that only the purses forbid bounds the price as well, so they are not asked here.
    """
    near = known.near(np.maximum(mixed.worth, 0.0), gap)
    basket.steps += mixed.steps + len(near)
    bought, bound = whole(basket.items, bins, {}, near[:_MOST_COLUMNS], _NEAR_GAP)
    _buy(basket, bins, bought)
    return bound * _TOLERANCE if len(near) <= _MOST_COLUMNS else 0.0


def _buy(basket: Basket, bins: Sequence[Bin], bought: Iterable[tuple[Column, int]]) -> None:
    for column, amount in bought:
        basket.buy(bins[column.bin], column.counts, amount)
