"""Round a fractional plan to whole nodes.

The whole part of each amount is bought, less one of each pattern to leave some choice. The rest is a small integer
program over the patterns with the lowest reduced costs.
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
    """Return whole numbers of columns close to the fractional plan.

    They may serve some items more often than needed and, if limits bind, others not at all.
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
    """Return the whole part of each amount in the fractional plan."""
    pairs = zip(mixed.columns, mixed.amounts.tolist(), strict=True)
    return [(column, floor(amount + _EPSILON)) for column, amount in pairs if amount + _EPSILON >= 1]


def without_dear(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan, most_price: float
) -> FractionalPlan:
    """Return the cheapest fractional plan of those columns whose bins cost at most `most_price`."""
    master = Master(items, bins, limits)
    master.add(column for column in mixed.columns if bins[column.bin].price <= most_price)
    return master.solve(mixed.steps)


def _promising(bins: Sequence[Bin], mixed: FractionalPlan) -> list[Column]:
    """Return the columns in the fractional plan, and then those with the lowest reduced costs."""
    prices = np.array([bins[c.bin].price - mixed.discounts[c.bin] for c in mixed.columns])
    extra = prices - np.array([c.counts for c in mixed.columns]) @ mixed.worth
    extra[mixed.amounts > _EPSILON] = -1.0
    return [mixed.columns[c] for c in np.argsort(extra, kind="stable")[:_MOST_COLUMNS]]


def _spared(bins: Sequence[Bin], limits: Limits, kept: Mapping[Column, int]) -> dict[int, Vector]:
    """Return what remains of the limits after the kept columns are bought."""
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
    """Buy whole numbers of columns as cheaply as a short branch and bound finds; return them and its lower bound."""
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
