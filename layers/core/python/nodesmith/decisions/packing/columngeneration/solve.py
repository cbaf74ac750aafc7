"""The plan for many things of few kinds: the cheapest mix of fillings, made whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import fsum, inf

import numpy as np

from nodesmith.decisions.packing.columngeneration.columns import mix
from nodesmith.decisions.packing.columngeneration.covering import cheapest_cover, states
from nodesmith.decisions.packing.columngeneration.enumeration import Fillings, exact_mix, fillings
from nodesmith.decisions.packing.columngeneration.master import Column, Mix
from nodesmith.decisions.packing.columngeneration.rounding import rounded, whole, wholes, without_dear
from nodesmith.decisions.packing.downsizing import shrink
from nodesmith.decisions.packing.exact import number_of_fillings
from nodesmith.decisions.packing.greedy import fill_greedily
from nodesmith.decisions.packing.plan import Basket
from nodesmith.decisions.packing.problem import Bin, Vector

_MOST_FILLINGS = 100_000
_NODES_A_KIND = 2
_FEW_COLUMNS = 60
_MOST_COLUMNS = 20_000
_MOST_WORK = 10_000_000  # states of what is left times fillings
_NEAR_GAP = 2e-3
_MOST_OF_ALL = 0.8
_FEW_KINDS = 12
_MOST_FILLS = 1_000_000
_TOLERANCE = 1 - 1e-6
_GOOD_ENOUGH = 1.005


def buy_by_columns(
    basket: Basket, bins: Sequence[Bin], first: Basket, prices: Sequence[float], most_steps: int
) -> float:
    """Buy for what is left, starting from the fillings of another plan for the same; give a bound, 0 for none.

    `prices` are those of a unit of each resource.
    """
    numbers = {b.key: n for n, b in enumerate(bins)}
    columns = [Column(numbers[b.key], counts) for b, counts, _ in first.bought]
    if number_of_fillings(basket.items) > _MOST_FILLINGS:
        nodes = sum(repeats for *_, repeats in first.bought)
        if len(basket.items) > _FEW_KINDS and nodes < _NODES_A_KIND * len(basket.items):
            return 0.0  # of a mix in fractions, about one for each kind, hardly a node would be whole
        mixed = mix(basket.items, bins, basket.spending.purses, columns, most_steps)
        basket.steps += mixed.steps
        _buy_whole(basket, bins, mixed, first.price / len(basket.items), prices)
        return _bound_of_most(basket, bins, mixed)
    known = fillings(basket.items, bins)
    mixed, bound = exact_mix(basket.items, bins, known, columns)
    basket.steps += mixed.steps
    if first.price <= bound * _GOOD_ENOUGH:
        return bound
    return max(bound, _buy_near(basket, bins, known, mixed, (bound, first.price)))


def _buy_whole(
    basket: Basket, bins: Sequence[Bin], mixed: Mix, most_price: float, prices: Sequence[float]
) -> None:
    """Buy what is cheapest of a mix rounded, and of what is whole in it, with or without dear bins, and a quick rest.

    Of dear bins a mix holds so few that hardly any is whole; without them more is, at nearly the same price.
    """
    purses = basket.spending.purses
    plans = [
        rounded(basket.items, bins, purses, mixed),
        wholes(mixed),
        wholes(without_dear(basket.items, bins, purses, mixed, most_price)),
    ]
    trials = []
    for plan in plans:
        trial = Basket(basket.items, purses, basket.steps)
        _buy(trial, bins, plan)
        shrink(trial, bins)
        fill_greedily(trial, bins, prices, _MOST_FILLS)
        trials.append(trial)
    for bought in min(trials, key=lambda trial: trial.rank).bought:
        basket.buy(*bought)


def _bound_of_most(basket: Basket, bins: Sequence[Bin], mixed: Mix) -> float:
    """Bound the price of the items that are worth most, of as many as all fillings can be written down for."""
    total = np.maximum(mixed.worth, 0.0) * [item.count for item in basket.items]
    kept = np.argsort(-total, kind="stable").tolist()
    while number_of_fillings([basket.items[n] for n in kept]) > _MOST_FILLINGS:
        kept.pop()
    if total[kept].sum() < _MOST_OF_ALL * total.sum():
        return 0.0
    items = [basket.items[n] for n in kept]
    local = {
        mask: sum((mask >> n & 1) << place for place, n in enumerate(kept))
        for mask in {b.admits for b in bins}
    }
    known = fillings(items, [replace(b, admits=local[b.admits]) for b in bins])
    basket.steps += len(known.price)
    return exact_mix(items, bins, known, [])[1] * _TOLERANCE


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
    """Buy of the fillings next to those of the mix; if these are all that can be in a better plan, that is the best.

    Give the bound then proved. Purses are not asked for that: what only they forbid bounds the price as well.
    """
    bound, price = between
    worth = np.maximum(mixed.worth, 0.0)
    held = [bool(row.any()) for row in known.counts]
    counts = [item.count if some else 0 for item, some in zip(basket.items, held, strict=True)]
    most = _MOST_WORK // states(counts)
    near = known.near(worth, price - bound, max(most // 4, _FEW_COLUMNS))
    if most < _FEW_COLUMNS:
        bought, least = whole(basket.items, bins, {}, near, _NEAR_GAP)
        proved = least if len(near) < _FEW_COLUMNS else bound
    else:
        bought, cost = _cover(counts, bins, near)
        rivals = known.near(worth, min(cost, price) - bound, most + 1)
        if len(near) < len(rivals) <= most:
            bought, cost = _cover(counts, bins, rivals)
        proved = min(cost, price) if len(rivals) <= most else bound
    basket.steps += len(near)
    _buy(basket, bins, bought)
    return proved * _TOLERANCE


def _cover(
    counts: Sequence[int], bins: Sequence[Bin], columns: Sequence[Column]
) -> tuple[list[tuple[Column, int]], float]:
    """Return the cheapest whole numbers of these columns, and their price: infinite where they cannot serve all."""
    prices = [bins[column.bin].price for column in columns]
    cover = cheapest_cover(counts, [column.counts for column in columns], prices)
    if cover is None:
        return [], inf
    bought = [(columns[place], number) for place, number in cover.items()]
    return bought, fsum(prices[place] * number for place, number in cover.items())


def _buy(basket: Basket, bins: Sequence[Bin], bought: Iterable[tuple[Column, int]]) -> None:
    for column, amount in bought:
        basket.buy(bins[column.bin], column.counts, amount)
