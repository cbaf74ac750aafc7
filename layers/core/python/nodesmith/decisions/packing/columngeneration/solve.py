"""Plans for many items of few kinds: the cheapest fractional combination of patterns, rounded to whole nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum, inf

import numpy as np

from nodesmith.decisions.packing.columngeneration.columns import (
    AllPatterns,
    Column,
    FractionalPlan,
    all_patterns,
    mix,
    solve_all_patterns,
)
from nodesmith.decisions.packing.columngeneration.rounding import (
    cheapest_cover,
    rounded,
    states,
    whole,
    wholes,
    without_dear,
)
from nodesmith.decisions.packing.exact import downsize, number_of_patterns
from nodesmith.decisions.packing.greedy import fill_greedily
from nodesmith.decisions.packing.problem import Bin, Item, Limits, PartialPlan, Vector

_MOST_FILLINGS = 100_000
_NODES_A_KIND = 2
_FEW_COLUMNS = 60
_MOST_COLUMNS = 20_000
_MOST_WORK = 10_000_000  # states times patterns
_NEAR_GAP = 2e-3
_MOST_OF_ALL = 0.8
_FEW_KINDS = 12
_MOST_FILLS = 1_000_000
_TOLERANCE = 1 - 1e-6
_GOOD_ENOUGH = 1.005


def pack_by_columns(
    partial: PartialPlan, bins: Sequence[Bin], first: PartialPlan, prices: Sequence[float], most_steps: int
) -> float:
    """Buy for the items left, and return a lower bound on their price, or 0 if there is none.

    Column generation starts from the patterns of `first`, another plan for the same items. `prices` are those of a unit
    of each resource.
    """
    numbers = {b.key: n for n, b in enumerate(bins)}
    columns = [Column(numbers[b.whole_key], counts) for b, counts, _ in first.bought]
    is_paid = any(b.instead is not None for b in bins)  # by limits, which the other way ignores
    if is_paid or number_of_patterns(partial.items) > _MOST_FILLINGS:
        nodes = sum(repeats for *_, repeats in first.bought)
        if len(partial.items) > _FEW_KINDS and nodes < _NODES_A_KIND * len(partial.items):
            return (
                0.0  # a fractional plan has about one pattern for each kind, so hardly a node would be whole
            )
        mixed = mix(partial.items, bins, partial.remaining.limits, columns, most_steps)
        partial.steps += mixed.steps
        _buy_whole(partial, bins, mixed, first.price / len(partial.items), prices)
        return _bound_of_most(partial, bins, mixed)
    known = all_patterns(partial.items, bins)
    mixed, bound = solve_all_patterns(partial.items, bins, known, columns)
    partial.steps += mixed.steps
    if first.price <= bound * _GOOD_ENOUGH:
        return bound
    return max(bound, _buy_near(partial, bins, known, mixed, (bound, first.price)))


def _buy_whole(
    partial: PartialPlan,
    bins: Sequence[Bin],
    mixed: FractionalPlan,
    most_price: float,
    prices: Sequence[float],
) -> None:
    """Buy the cheapest of three roundings, each completed by the quick plan.

    They are the rounded fractional plan, its whole parts, and the whole parts of a plan without bins above
    `most_price`. A fractional plan has so few expensive bins that hardly any amount is whole; without them more amounts
    are, at nearly the same price.
    """
    limits = partial.remaining.limits
    plans = [
        rounded(partial.items, bins, limits, mixed),
        wholes(mixed),
        wholes(without_dear(partial.items, bins, limits, mixed, most_price)),
    ]
    trials = []
    for plan in plans:
        trial = PartialPlan(partial.items, limits, partial.steps)
        _buy(trial, bins, plan)
        downsize(trial, bins)
        fill_greedily(trial, bins, prices, _MOST_FILLS)
        trials.append(trial)
    for bought in min(trials, key=lambda trial: trial.rank).bought:
        partial.buy(*bought)


def _bound_of_most(partial: PartialPlan, bins: Sequence[Bin], mixed: FractionalPlan) -> float:
    """Return a lower bound on the price of the items with the most worth, as many as patterns can be listed for."""
    total = np.maximum(mixed.worth, 0.0) * [item.count for item in partial.items]
    kept = np.argsort(-total, kind="stable").tolist()
    while number_of_patterns([partial.items[n] for n in kept]) > _MOST_FILLINGS:
        kept.pop()
    if total[kept].sum() < _MOST_OF_ALL * total.sum():
        return 0.0
    items = [partial.items[n] for n in kept]
    local = {
        mask: sum((mask >> n & 1) << place for place, n in enumerate(kept))
        for mask in {b.admits for b in bins}
    }
    known = all_patterns(items, [replace(b, admits=local[b.admits]) for b in bins])
    partial.steps += len(known.price)
    return solve_all_patterns(items, bins, known, [])[1] * _TOLERANCE


def scarcity(items: Sequence[Item], bins: Sequence[Bin], limits: Limits) -> Mapping[int, tuple[float, ...]]:
    """Return by limit what one more unit of each of its amounts would save: dual prices of the fractional plan."""
    return mix(items, bins, limits, (), _MOST_FILLS).scarcity


def linear_bound(items: Sequence[Item], bins: Sequence[Bin]) -> float:
    """Return the price of the fractional plan of all patterns, slightly less because of rounding."""
    return solve_all_patterns(items, bins, all_patterns(items, bins), [])[1] * _TOLERANCE


def pack_within_limits(partial: PartialPlan, bins: Sequence[Bin]) -> None:
    """Buy for all items left with one integer program over every pattern and every amount it may take from a limit.

    Items that the limits do not cover are served last, if at all.
    """
    kinds: dict[tuple[int, Vector], list[int]] = {}
    for number, bin_ in enumerate(bins):
        limit = bin_.limit if bin_.limit in partial.remaining.limits else -1
        kinds.setdefault((limit, bin_.cost if limit >= 0 else ()), []).append(number)
    columns: list[Column] = []
    for numbers in kinds.values():
        known = all_patterns(partial.items, [bins[n] for n in numbers])
        partial.steps += len(known.price)
        columns += (
            Column(numbers[place], tuple(counts))
            for place, counts in zip(known.bin.tolist(), known.counts.T.tolist(), strict=True)
        )
    if len(columns) <= _MOST_COLUMNS:
        bought, _ = whole(partial.items, bins, partial.remaining.limits, columns, 0.0)
        _buy(partial, bins, bought)


def _buy_near(
    partial: PartialPlan,
    bins: Sequence[Bin],
    known: AllPatterns,
    mixed: FractionalPlan,
    between: tuple[float, float],
) -> float:
    """Buy the cheapest combination of patterns with low reduced costs, and return the lower bound that this proves.

    If these are all patterns that a better plan could contain, the combination is optimal. The bound ignores limits; it
    also holds for plans within limits, as these cost no less.
    """
    bound, price = between
    worth = np.maximum(mixed.worth, 0.0)
    held = [bool(row.any()) for row in known.counts]
    counts = [item.count if some else 0 for item, some in zip(partial.items, held, strict=True)]
    most = _MOST_WORK // states(counts)
    near = known.near(worth, price - bound, max(most // 4, _FEW_COLUMNS))
    if most < _FEW_COLUMNS:
        bought, least = whole(partial.items, bins, {}, near, _NEAR_GAP)
        proved = least if len(near) < _FEW_COLUMNS else bound
    else:
        bought, cost = _cover(counts, bins, near)
        rivals = known.near(worth, min(cost, price) - bound, most + 1)
        if len(near) < len(rivals) <= most:
            bought, cost = _cover(counts, bins, rivals)
        proved = min(cost, price) if len(rivals) <= most else bound
    partial.steps += len(near)
    _buy(partial, bins, bought)
    return proved * _TOLERANCE


def _cover(
    counts: Sequence[int], bins: Sequence[Bin], columns: Sequence[Column]
) -> tuple[list[tuple[Column, int]], float]:
    """Return the cheapest whole numbers of these columns, and their price: infinite if they cannot serve all items."""
    prices = [bins[column.bin].price for column in columns]
    cover = cheapest_cover(counts, [column.counts for column in columns], prices)
    if cover is None:
        return [], inf
    bought = [(columns[place], number) for place, number in cover.items()]
    return bought, fsum(prices[place] * number for place, number in cover.items())


def _buy(partial: PartialPlan, bins: Sequence[Bin], bought: Iterable[tuple[Column, int]]) -> None:
    for column, amount in bought:
        partial.buy(bins[column.bin], column.counts, amount)
