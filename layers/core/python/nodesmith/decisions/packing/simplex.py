"""Solve linear programs with few unknowns, without a library: the simplex method on the condensed tableau."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf
from operator import mul

_TOLERANCE = 1e-9
_PIVOTS_PER_UNKNOWN = 20
_MOST_ROUNDS = 20
_Row = list[float]


def dual_prices(
    demand: Sequence[float], offers: Sequence[Sequence[float]], prices: Sequence[float]
) -> list[float]:
    """Return prices y per unit of each thing that maximize `demand · y`, with `offer · y <= price` for every offer.

    y is at least 0. Demands must be positive, prices must not be negative, and for each thing some offer must have any
    of it. Because of rounding, y may slightly violate a constraint. Most offers never bind. The program therefore
    starts with the cheapest offer for each thing, and adds offers that the prices found so far violate.
    """
    rows = [[have / d for have, d in zip(offer, demand, strict=True)] for offer in offers]
    asked = dict.fromkeys(
        min(range(len(rows)), key=lambda n: prices[n] / rows[n][thing] if rows[n][thing] else inf)
        for thing in range(len(demand))
    )
    found: _Row = []
    for _ in range(_MOST_ROUNDS):
        found = _optimum([[*rows[n], prices[n]] for n in asked], len(demand))
        worth = [fsum(map(mul, found, row)) for row in rows]
        cheap = [
            n for n, price in enumerate(prices) if worth[n] > price * (1 + _TOLERANCE) and n not in asked
        ]
        if not cheap:
            break
        asked |= dict.fromkeys(sorted(cheap, key=lambda n: prices[n] / worth[n])[: 2 * len(demand)])
    return [price / d for price, d in zip(found, demand, strict=True)]


def _optimum(rows: list[_Row], unknowns: int) -> _Row:
    """Maximize the sum of the unknowns. A row is an offer's coefficients, then its right-hand side."""
    gains = [1.0] * unknowns + [0.0]
    outside: list[int | None] = list(range(unknowns))
    inside: list[int | None] = [None] * len(rows)
    for _ in range(_PIVOTS_PER_UNKNOWN * unknowns):
        column = max(range(unknowns), key=gains.__getitem__)
        row = _tightest(rows, column)
        if gains[column] <= _TOLERANCE or row is None:
            break
        outside[column], inside[row] = inside[row], outside[column]
        _pivot(rows, row, column, gains)
    found = [0.0] * unknowns
    for unknown, values in zip(inside, rows, strict=True):
        if unknown is not None:
            found[unknown] = max(0.0, values[-1])
    return found


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
            row[:] = [have - times * value for have, value in zip(row, pivot, strict=True)]
    rows[number] = pivot
