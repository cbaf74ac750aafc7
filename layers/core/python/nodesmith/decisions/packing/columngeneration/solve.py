"""Plans for many items of few kinds: the cheapest fractional combination of patterns, rounded to whole nodes.

`rounded` buys the whole part of each amount, less one of each pattern to leave some choice; the rest is a small integer
program over the patterns with the lowest reduced costs. `cheapest_cover` solves small problems by dynamic programming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import floor, fsum, inf, prod

import highspy
import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.columngeneration.columns import (
    AllPatterns,
    Column,
    FractionalPlan,
    Master,
    all_patterns,
    mix,
    solve_all_patterns,
)
from nodesmith.decisions.packing.exact import NODE_SURCHARGE, downsize, number_of_patterns
from nodesmith.decisions.packing.greedy import fill_greedily
from nodesmith.decisions.packing.problem import Bin, Item, Limits, PartialPlan, Vector

_MOST_FILLINGS = 100_000
_NODES_A_KIND = 0.75
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

    Column generation starts from the patterns of `first`, another plan for the same items. `prices` are per unit of
    each resource.
    """
    numbers = {b.key: n for n, b in enumerate(bins)}
    columns = [Column(numbers[b.whole_key], counts) for b, counts, _ in first.bought]
    is_paid = any(b.substitute is not None for b in bins)  # by limits, which `solve_all_patterns` ignores
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
    patterns = all_patterns(partial.items, bins)
    mixed, bound = solve_all_patterns(partial.items, bins, patterns, columns)
    partial.steps += mixed.steps
    if first.price <= bound * _GOOD_ENOUGH:
        return bound
    return max(bound, _buy_near(partial, bins, patterns, mixed, (bound, first.price)))


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
        whole_parts(mixed),
        whole_parts(within_price(partial.items, bins, limits, mixed, most_price)),
        *diving_plans(partial.items, bins, limits, mixed, _EPSILON),
        *diving_plans(partial.items, bins, limits, mixed, _NEARLY_WHOLE),
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
    members = np.argsort(-total, kind="stable").tolist()
    while number_of_patterns([partial.items[n] for n in members]) > _MOST_FILLINGS:
        members.pop()
    if total[members].sum() < _MOST_OF_ALL * total.sum():
        return 0.0
    items = [partial.items[n] for n in members]
    local = {
        mask: sum((mask >> n & 1) << place for place, n in enumerate(members))
        for mask in {b.admits for b in bins}
    }
    patterns = all_patterns(items, [replace(b, admits=local[b.admits]) for b in bins])
    partial.steps += len(patterns.price)
    return solve_all_patterns(items, bins, patterns, [])[1] * _TOLERANCE


def scarcity(items: Sequence[Item], bins: Sequence[Bin], limits: Limits) -> Mapping[int, tuple[float, ...]]:
    """Return, by limit, the saving by one more unit of each of its amounts: dual prices of the fractional plan."""
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
        patterns = all_patterns(partial.items, [bins[n] for n in numbers])
        partial.steps += len(patterns.price)
        columns += (
            Column(numbers[place], tuple(counts))
            for place, counts in zip(patterns.bin.tolist(), patterns.counts.T.tolist(), strict=True)
        )
    if len(columns) <= _MOST_COLUMNS:
        bought, _ = integer_plan(partial.items, bins, partial.remaining.limits, columns, 0.0)
        _buy(partial, bins, bought)


def _buy_near(
    partial: PartialPlan,
    bins: Sequence[Bin],
    patterns: AllPatterns,
    mixed: FractionalPlan,
    between: tuple[float, float],
) -> float:
    """Buy the cheapest combination of patterns with low reduced costs, and return the lower bound that this proves.

    If these are all patterns that a better plan could contain, the combination is optimal. The bound ignores limits; it
    also holds for plans within limits, as these cost no less.
    """
    bound, price = between
    worth = np.maximum(mixed.worth, 0.0)
    held = [bool(row.any()) for row in patterns.counts]
    counts = [item.count if is_held else 0 for item, is_held in zip(partial.items, held, strict=True)]
    most = _MOST_WORK // states(counts)
    near = patterns.near(worth, price - bound, max(most // 4, _FEW_COLUMNS))
    if most < _FEW_COLUMNS:
        bought, least = integer_plan(partial.items, bins, {}, near, _NEAR_GAP)
        proved = least if len(near) < _FEW_COLUMNS else bound
    else:
        bought, cost = _cover(counts, bins, near)
        rivals = patterns.near(worth, min(cost, price) - bound, most + 1)
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


_MOST_ROUNDED_COLUMNS = 60
_MOST_BRANCHES = 20
_GAP = 5e-4
_NEARLY_WHOLE = 0.2
"""The share of a node by which an amount may miss the next whole number."""
_DIVED = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""The quick plan serves the remaining items once no amount of a dive reaches these shares of a node."""
_EPSILON = 1e-6
_Indices = NDArray[np.int32]


def rounded(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan
) -> list[tuple[Column, int]]:
    """Return whole numbers of columns close to the fractional plan.

    They may serve some items more often than needed and, if limits bind, others not at all.
    """
    amounts = {c: max(0, floor(a + _EPSILON) - 1) for c, a in zip(mixed.columns, mixed.amounts, strict=True)}
    counts = [sum(n * column.counts[i] for column, n in amounts.items()) for i in range(len(items))]
    unserved = [
        Item(item.size, max(0, item.count - served), item.per_node)
        for item, served in zip(items, counts, strict=True)
    ]
    bought, _ = integer_plan(unserved, bins, _limits_left(bins, limits, amounts), _promising(bins, mixed))
    for column, amount in bought:
        amounts[column] += amount
    return [(column, amount) for column, amount in amounts.items() if amount]


def whole_parts(mixed: FractionalPlan) -> list[tuple[Column, int]]:
    """Return the whole part of each amount in the fractional plan."""
    pairs = zip(mixed.columns, mixed.amounts.tolist(), strict=True)
    return [(column, floor(amount + _EPSILON)) for column, amount in pairs if amount + _EPSILON >= 1]


def diving_plans(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan, short: float
) -> Iterator[list[tuple[Column, int]]]:
    """Yield plans that a dive into the fractional plan's columns passes through, each with more of the items.

    It buys the whole part of all amounts, and an amount may fall `short` of a whole number by so much. If there is no
    whole part, it buys one of the column with the highest amount, and yields the purchases so far each time that this
    amount is below the next of `_DIVED`. Then it solves the program again for the items that are not served yet.
    """
    master = Master(items, bins, limits)
    master.add(mixed.columns)
    contents = np.array([column.counts for column in master.columns])
    unserved = np.array([item.count for item in items])
    bought: Counter[Column] = Counter()
    ends = list(_DIVED)
    while unserved.any():
        master.ask(unserved.tolist(), _limits_left(bins, limits, bought))
        amounts = master.solve(mixed.steps).amounts
        number = np.floor(amounts + short).astype(np.int64)
        if not number.any():
            first = int(amounts.argmax())
            if amounts[first] <= _EPSILON:
                break
            while ends and amounts[first] < ends[0]:
                ends.pop(0)
                yield list(bought.items())
            number[first] = 1
        bought.update({master.columns[n]: int(number[n]) for n in np.flatnonzero(number).tolist()})
        unserved = np.maximum(0, unserved - number @ contents)
    yield list(bought.items())


def within_price(
    items: Sequence[Item], bins: Sequence[Bin], limits: Limits, mixed: FractionalPlan, most_price: float
) -> FractionalPlan:
    """Return the cheapest fractional plan of the columns with bins that cost at most `most_price`."""
    master = Master(items, bins, limits)
    master.add(column for column in mixed.columns if bins[column.bin].price <= most_price)
    return master.solve(mixed.steps)


def _promising(bins: Sequence[Bin], mixed: FractionalPlan) -> list[Column]:
    """Return the columns in the fractional plan, and then those with the lowest reduced costs."""
    prices = np.array([bins[c.bin].price - mixed.discounts[c.bin] for c in mixed.columns])
    extra = prices - np.array([c.counts for c in mixed.columns]) @ mixed.worth
    extra[mixed.amounts > _EPSILON] = -1.0
    return [mixed.columns[c] for c in np.argsort(extra, kind="stable")[:_MOST_ROUNDED_COLUMNS]]


def _limits_left(bins: Sequence[Bin], limits: Limits, purchases: Mapping[Column, int]) -> dict[int, Vector]:
    """Return the limits that remain after these purchases."""
    left = {limit: list(amounts) for limit, amounts in limits.items()}
    for column, number in purchases.items():
        bin_ = bins[column.bin]
        if bin_.limit in left:
            left[bin_.limit] = [
                available - number * cost for available, cost in zip(left[bin_.limit], bin_.cost, strict=True)
            ]
    return {limit: tuple(amounts) for limit, amounts in left.items()}


def integer_plan(
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


def states(counts: Sequence[int]) -> int:
    """Return the number of states; work and memory are proportional to it times the number of patterns."""
    return prod(count + 1 for count in counts)


def cheapest_cover(
    counts: Sequence[int], patterns: Sequence[Vector], prices: Sequence[float]
) -> dict[int, int] | None:
    """Return how often to buy each pattern (by its index) to serve all items; None if these patterns cannot.

    A pattern may serve less than it holds.
    """
    order = sorted(range(len(counts)), key=lambda item: (counts[item], item))
    table = _Table([counts[i] for i in order], [[held[i] for i in order] for held in patterns], prices)
    for axis in reversed(range(len(counts))):
        table.compute_prices(axis)
    return table.bought()


class _Table:
    """The lowest price of every state, and the pattern that is bought first for it.

    A state is the count of each item still to be served. A pattern that holds some of the first item must serve what is
    left of it. States are therefore processed item by item, and all states that differ only in later items are
    processed at once.
    """

    def __init__(
        self, counts: Sequence[int], patterns: Sequence[Sequence[int]], prices: Sequence[float]
    ) -> None:
        self._counts, self._patterns = counts, patterns
        self._prices = [price + NODE_SURCHARGE for price in prices]
        self._strides = [states(counts[axis + 1 :]) for axis in range(len(counts))]
        self._best = np.full(states(counts), np.inf)
        self._best[0] = 0.0
        self._first: _Indices = np.full(states(counts), -1, dtype=np.int32)

    def compute_prices(self, axis: int) -> None:
        """Compute the prices of the states in which this item is the first with any left."""
        stride = self._strides[axis]
        holding = [place for place, held in enumerate(self._patterns) if held[axis]]
        states_after = [self._states_after(self._patterns[place], axis + 1) for place in holding]
        for left in range(1, self._counts[axis] + 1):
            best = self._best[left * stride : (left + 1) * stride]
            first = self._first[left * stride : (left + 1) * stride]
            for place, remaining_states in zip(holding, states_after, strict=True):
                after = max(0, left - self._patterns[place][axis]) * stride
                price = self._best[after : after + stride][remaining_states] + self._prices[place]
                cheaper = price < best
                np.copyto(best, price, where=cheaper)
                first[cheaper] = place

    def _states_after(self, held: Sequence[int], axis: int) -> _Indices:
        """Return for every state of the items from `axis` on the number of the state that remains after one pattern."""
        numbers: _Indices = np.zeros(1, dtype=np.int32)
        for count, number, stride in zip(self._counts[axis:], held[axis:], self._strides[axis:], strict=True):
            after: _Indices = np.maximum(np.arange(count + 1, dtype=np.int32) - number, 0) * stride
            numbers = (numbers[:, None] + after[None, :]).ravel()
        return numbers

    def bought(self) -> dict[int, int] | None:
        """Follow the first patterns from the state in which all items are left."""
        if not np.isfinite(self._best[-1]):
            return None
        purchases: Counter[int] = Counter()
        unserved = list(self._counts)
        while any(unserved):
            place = int(self._first[sum(map(int.__mul__, unserved, self._strides))])
            purchases[place] += 1
            unserved = [
                max(0, count - held) for count, held in zip(unserved, self._patterns[place], strict=True)
            ]
        return dict(purchases)
