"""The simplex method for small linear programs: the dual prices of things, given offers of them.

The hot path solves programs with a dozen unknowns, for which it does not import numpy or HiGHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf
from operator import mul

_TOLERANCE = 1e-9
_PIVOTS_PER_UNKNOWN = 20
_MOST_ROUNDS = 20
_Row = list[float]
_Coefficients = tuple[float, ...]


def dual_prices(
    demand: Sequence[float], offers: Sequence[Sequence[float]], prices: Sequence[float]
) -> list[float]:
    """Return prices y per unit of each thing that maximize `demand · y`, with `offer · y <= price` for every offer.

    y is at least 0. Demands must be positive, prices must not be negative, and for each thing some offer must have any
    of it. Because of rounding, y may slightly violate a constraint. Most offers never bind. The program therefore
    starts with the cheapest offer for each thing, and adds offers that the prices found so far violate.
    """
    rows = [[amount / d for amount, d in zip(offer, demand, strict=True)] for offer in offers]
    active = dict.fromkeys(
        min(range(len(rows)), key=lambda n: prices[n] / rows[n][thing] if rows[n][thing] else inf)
        for thing in range(len(demand))
    )
    solution: _Row = []
    for _ in range(_MOST_ROUNDS):
        solution = _optimum([[*rows[n], prices[n]] for n in active], len(demand))
        worth = [fsum(map(mul, solution, row)) for row in rows]
        cheap = [
            n for n, price in enumerate(prices) if worth[n] > price * (1 + _TOLERANCE) and n not in active
        ]
        if not cheap:
            break
        active |= dict.fromkeys(sorted(cheap, key=lambda n: prices[n] / worth[n])[: 2 * len(demand)])
    return [price / d for price, d in zip(solution, demand, strict=True)]


def scarcity(offers: Sequence[tuple[_Coefficients, float]], things: int, charged: int) -> _Row:
    """Return the worth of all that is left of each charged amount.

    The program starts with offers that use none of it, and adds those that the prices found so far violate.
    """
    plain = [n for n, (row, _) in enumerate(offers) if not any(row[things:])]
    usual = [
        min(
            plain,
            key=lambda n: offers[n][1] / offers[n][0][thing] if offers[n][0][thing] else inf,
            default=None,
        )
        for thing in range(things)
    ]
    if None in usual or len(plain) == len(offers):
        return [0.0] * charged
    active = dict.fromkeys(n for n in usual if n is not None)
    gains = [1.0] * things + [-1.0] * charged
    solution: _Row = [0.0] * len(gains)
    for _ in range(_MOST_ROUNDS):
        solution = _optimum([[*offers[n][0], offers[n][1]] for n in active], len(gains), gains)
        excess = {
            n: fsum(map(mul, solution, row)) - price
            for n, (row, price) in enumerate(offers)
            if n not in active
        }
        violated = [n for n, amount in excess.items() if amount > _TOLERANCE * (1 + offers[n][1])]
        if not violated:
            break
        active |= dict.fromkeys(sorted(violated, key=lambda n: (-excess[n], n))[: 2 * len(gains)])
    return solution[things:]


def _optimum(rows: list[_Row], unknowns: int, gained: Sequence[float] = ()) -> _Row:
    """Maximize the sum of the unknowns, each times its gain: 1 by default.

    A row is an offer's coefficients, then its right-hand side.
    """
    gains = [*(gained or [1.0] * unknowns), 0.0]
    outside: list[int | None] = list(range(unknowns))
    inside: list[int | None] = [None] * len(rows)
    for _ in range(_PIVOTS_PER_UNKNOWN * unknowns):
        column = max(range(unknowns), key=gains.__getitem__)
        row = _tightest(rows, column)
        if gains[column] <= _TOLERANCE or row is None:
            break
        outside[column], inside[row] = inside[row], outside[column]
        _pivot(rows, row, column, gains)
    solution = [0.0] * unknowns
    for unknown, values in zip(inside, rows, strict=True):
        if unknown is not None:
            solution[unknown] = max(0.0, values[-1])
    return solution


def _tightest(rows: Sequence[_Row], column: int) -> int | None:
    """Return the row that binds first as one unknown grows; None if none does."""
    steps = [(row[-1] / row[column], number) for number, row in enumerate(rows) if row[column] > _TOLERANCE]
    return min(steps)[1] if steps else None


def _pivot(rows: list[_Row], number: int, column: int, gains: _Row) -> None:
    factor = rows[number][column]
    pivot = [value / factor for value in rows[number]]
    pivot[column] = 1 / factor
    for row in (*rows[:number], *rows[number + 1 :], gains):
        if times := row[column]:
            row[column] = 0.0
            row[:] = [old - times * value for old, value in zip(row, pivot, strict=True)]
    rows[number] = pivot
