"""From a mix of fillings in fractions to whole nodes.

What the mix buys whole is bought, but for one of each filling, so that there is something to choose from. The rest is a
small problem in whole numbers over the fillings that cost least beyond their worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor

import highspy
import numpy as np

from nodesmith.decisions.packing.columngeneration.master import Column, FractionalPlan, Master
from nodesmith.decisions.packing.problem import Bin, Item, Limits, Vector

_MOST_COLUMNS = 60
_MOST_BRANCHES = 20
_GAP = 5e-4
_EPSILON = 1e-6


def rounded(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan
) -> list[tuple[Column, int]]:
    """Return whole numbers of columns near to the mix.

    They may serve some items more often than needed and, where purses bind, others not at all.
    """
    kept = {c: max(0, floor(a + _EPSILON) - 1) for c, a in zip(mixed.columns, mixed.amounts, strict=True)}
    counts = [sum(n * column.counts[i] for column, n in kept.items()) for i in range(len(items))]
    rest = [
        Item(item.size, max(0, item.count - served), item.per_node)
        for item, served in zip(items, counts, strict=True)
    ]
    bought, _ = whole(rest, bins, _spared(bins, limits, kept), _promising(bins, mixed))
    for column, amount in bought:
        kept[column] += amount
    return [(column, amount) for column, amount in kept.items() if amount]


def wholes(mixed: FractionalPlan) -> list[tuple[Column, int]]:
    """Return what the mix buys whole."""
    pairs = zip(mixed.columns, mixed.amounts.tolist(), strict=True)
    return [(column, floor(amount + _EPSILON)) for column, amount in pairs if amount + _EPSILON >= 1]


def without_dear(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan, most_price: float
) -> FractionalPlan:
    """Return the cheapest mix of those of the columns whose bins cost no more than a price."""
    master = Master(items, bins, limits)
    master.add(column for column in mixed.columns if bins[column.bin].price <= most_price)
    return master.solve(mixed.steps)


def _promising(bins: Sequence[Bin], mixed: FractionalPlan) -> list[Column]:
    """Return the columns of the mix, and those that are next to being in it."""
    prices = np.array([bins[c.bin].price - mixed.discounts[c.bin] for c in mixed.columns])
    extra = prices - np.array([c.counts for c in mixed.columns]) @ mixed.worth
    extra[mixed.amounts > _EPSILON] = -1.0
    return [mixed.columns[c] for c in np.argsort(extra, kind="stable")[:_MOST_COLUMNS]]


def _spared(bins: Sequence[Bin], limits: Limits, kept: Mapping[Column, int]) -> dict[int, Vector]:
    """Return what the purses still hold when the kept columns are paid."""
    left = {limit: list(amounts) for limit, amounts in limits.items()}
    for column, number in kept.items():
        bin_ = bins[column.bin]
        if bin_.limit in left:
            left[bin_.limit] = [
                have - number * cost for have, cost in zip(left[bin_.limit], bin_.cost, strict=True)
            ]
    return {limit: tuple(amounts) for limit, amounts in left.items()}


def whole(
    items: Sequence[Item],
    bins: Sequence[Bin],
    limits: Limits,
    columns: Iterable[Column],
    gap: float = _GAP,
) -> tuple[list[tuple[Column, int]], float]:
    """Buy columns in whole numbers, as cheaply as some branching finds; give also the least that can cost."""
    master = Master(items, bins, limits)
    master.add(columns)
    first, end = len(items), len(items) + len(master.columns)
    numbers = np.arange(first, end, dtype=np.int32)
    integer = np.full(end - first, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
    master.solver.changeColsIntegrality(end - first, numbers, integer)
    master.solver.setOptionValue("mip_max_nodes", _MOST_BRANCHES)
    master.solver.setOptionValue("mip_rel_gap", gap)
    master.solver.run()
    values = list(master.solver.getSolution().col_value)[first:]
    bought = [(c, round(v)) for c, v in zip(master.columns, values, strict=True) if v > 0.5]
    return bought, master.solver.getInfo().mip_dual_bound
