"""A lower bound on the price of any plan, by column generation: the linear programme over all patterns of all types.

A master programme chooses among the patterns known so far; its dual prices are the worth of a pod of each shape. For
every type, a small integer programme then finds the pattern with the highest worth; a pattern worth more than its
type's price enters the master. Dividing any worths by the largest ratio of worth to price over all types makes a valid
bound (Farley), so an interrupted search still proves one. A trace takes a minute or more, so the benchmarks keep the
results as constants.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy

from nodesmith.decisions.shadow.karpenter import Kind, Vector

_CLOSE = 5e-4
_ROUNDS = 400


def lp_bound(asks: Sequence[tuple[Vector, int]], kinds: Sequence[Kind]) -> float:
    """Return a price in USD an hour that no nodes for all `asks` (the size of one pod, how many) can undercut.

    It is at most a two-thousandth below the linear programme's value, unless the rounds end first.
    """
    sizes, counts = [size for size, _ in asks], [count for _, count in asks]
    sold = undominated(kinds)
    columns = [_alone(index, size, sold) for index, size in enumerate(sizes)]
    best = 0.0
    for _ in range(_ROUNDS):
        value, worths = _master(columns, counts)
        found = [(_fullest(sizes, counts, worths, kind), kind) for kind in sold]
        ratio = max(worth / kind.price for (worth, _), kind in found)
        best = max(best, value / max(1.0, ratio))
        if ratio <= 1 + _CLOSE or value - best <= _CLOSE * value:
            break
        columns += [
            (held, kind.price) for (worth, held), kind in found if worth > kind.price * (1 + _CLOSE / 2)
        ]
    return best


def undominated(kinds: Sequence[Kind]) -> list[Kind]:
    """Leave out types that another type equals or beats in price and in all resources."""
    kept: list[Kind] = []
    for kind in sorted(kinds, key=lambda k: (k.price, tuple(-r for r in k.capacity), k.name)):
        if not any(
            all(mine <= r for mine, r in zip(kind.capacity, other.capacity, strict=True)) for other in kept
        ):
            kept.append(kind)
    return kept


def _alone(index: int, size: Vector, kinds: Sequence[Kind]) -> tuple[dict[int, int], float]:
    cheapest = next(k for k in kinds if all(s <= r for s, r in zip(size, k.capacity, strict=True)))
    return {index: 1}, cheapest.price


def _master(
    columns: Sequence[tuple[dict[int, int], float]], counts: Sequence[int]
) -> tuple[float, list[float]]:
    model = _model()
    for count in counts:
        model.addRow(count, highspy.kHighsInf, 0, [], [])
    for held, price in columns:
        model.addCol(price, 0, highspy.kHighsInf, len(held), list(held), list(held.values()))
    model.run()
    return model.getInfo().objective_function_value, [max(0.0, dual) for dual in model.getSolution().row_dual]


def _fullest(
    sizes: Sequence[Vector], counts: Sequence[int], worths: Sequence[float], kind: Kind
) -> tuple[float, dict[int, int]]:
    """Return an upper bound on the worth of a type's best pattern, and a pattern that comes near it."""
    model = _model()
    model.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for _ in kind.capacity:
        model.addRow(-highspy.kHighsInf, 1, 0, [], [])
    rows = list(range(len(kind.capacity)))
    for size, count, worth in zip(sizes, counts, worths, strict=True):
        shares = [s / r if r else float(s > 0) * 2 for s, r in zip(size, kind.capacity, strict=True)]
        model.addCol(worth, 0, count, len(rows), rows, shares)
    for index in range(len(sizes)):
        model.changeColIntegrality(index, highspy.HighsVarType.kInteger)
    model.setOptionValue("mip_rel_gap", _CLOSE / 4)
    model.run()
    pattern = model.getSolution().col_value
    return model.getInfo().mip_dual_bound, {i: round(n) for i, n in enumerate(pattern) if round(n)}


def _model() -> highspy.Highs:
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    return model
