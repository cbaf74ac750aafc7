"""The plan for many things of few kinds: the cheapest mix of fillings, made whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum

import numpy as np

from nodesmith.decisions.packing.basket import Basket
from nodesmith.decisions.packing.columns import Column, Mix, mix
from nodesmith.decisions.packing.enumeration import Fillings, exact_mix, fillings
from nodesmith.decisions.packing.exact import number_of_fillings
from nodesmith.decisions.packing.problem import Bin, Vector
from nodesmith.decisions.packing.rounding import rounded, whole

_MOST_FILLINGS = 200_000
_FEW_COLUMNS = 60
_MOST_COLUMNS = 20_000  # halved for every kind of item, for so the work of branching grows
_NEAR_GAP = 2e-3
_TOLERANCE = 1 - 1e-6
_GOOD_ENOUGH = 1.005


def buy_by_columns(basket: Basket, bins: Sequence[Bin], first: Basket, most_steps: int) -> float:
    """Buy for what is left, starting from the fillings of another plan for the same; give a bound, 0 for none."""
    numbers = {b.key: n for n, b in enumerate(bins)}
    columns = [Column(numbers[b.key], counts) for b, counts, _ in first.bought]
    if number_of_fillings(basket.items) > _MOST_FILLINGS:
        mixed = mix(basket.items, bins, basket.spending.purses, columns, most_steps)
        basket.steps += mixed.steps
        _buy(basket, bins, rounded(basket.items, bins, basket.spending.purses, mixed))
        return 0.0
    known = fillings(basket.items, bins)
    mixed, bound = exact_mix(basket.items, bins, known, columns)
    basket.steps += mixed.steps
    if first.price <= bound * _GOOD_ENOUGH:
        return bound
    return max(bound, _buy_near(basket, bins, known, mixed, (bound, first.price)))


def buy_within_purses(basket: Basket, bins: Sequence[Bin]) -> None:
    """Buy for all that is left, in one problem in whole numbers over every filling and all that it may cost a purse.

    What the purses cannot pay for is served last, and then not at all.
    """
    kinds: dict[tuple[int, Vector], list[int]] = {}
    for number, bin_ in enumerate(bins):
        purse = bin_.purse if bin_.purse in basket.spending.purses else -1
        kinds.setdefault((purse, bin_.cost if purse >= 0 else ()), []).append(number)
    columns: list[Column] = []
    for numbers in kinds.values():
        known = fillings(basket.items, [bins[n] for n in numbers])
        basket.steps += len(known.price)
        columns += (
            Column(numbers[place], tuple(counts))
            for place, counts in zip(known.bin.tolist(), known.counts.T.tolist(), strict=True)
        )
    if len(columns) <= _MOST_COLUMNS:
        bought, _ = whole(basket.items, bins, basket.spending.purses, columns, 0.0)
        _buy(basket, bins, bought)


def _buy_near(
    basket: Basket, bins: Sequence[Bin], known: Fillings, mixed: Mix, between: tuple[float, float]
) -> float:
    """Buy of the fillings next to those of the mix, and then of all that can be in a better plan if these are few.

    Give the bound then proved. Purses are not asked for that: what only they forbid bounds the price as well.
    """
    bound, price = between
    worth = np.maximum(mixed.worth, 0.0)
    most = _MOST_COLUMNS >> len(basket.items)
    near = known.near(worth, price - bound, most + 1)
    bought, least = whole(basket.items, bins, {}, near[:_FEW_COLUMNS], _NEAR_GAP)
    proved = least if len(near) <= _FEW_COLUMNS else bound
    cost = fsum(bins[column.bin].price * amount for column, amount in bought)
    if len(near) > _FEW_COLUMNS and cost > bound * _GOOD_ENOUGH:
        near = known.near(worth, min(cost, price) - bound, most + 1)
        if len(near) <= most:
            columns = [*near, *(column for column, _ in bought)]
            bought, proved = whole(basket.items, bins, {}, columns, _NEAR_GAP)
    basket.steps += len(near)
    _buy(basket, bins, bought)
    return proved * _TOLERANCE


def _buy(basket: Basket, bins: Sequence[Bin], bought: Iterable[tuple[Column, int]]) -> None:
    for column, amount in bought:
        basket.buy(bins[column.bin], column.counts, amount)
