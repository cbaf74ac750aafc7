"""Linear programmes in few unknowns, small enough to need no library: the simplex method on the condensed tableau."""

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
    """Return prices of a unit of each thing, at which all that is in demand is worth most and no offer too cheap.

    Maximises `demand · y` for y >= 0 with `offer · y <= price` for every offer. Demands are above 0, prices not below;
    of each thing some offer has any. Rounding may leave y a little beyond what is allowed. Most offers never matter, so
    that only those are asked which are the cheapest for one thing, or were too cheap at the prices found before.
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
    """Maximise the sum of unknowns under rows of their factors and, last, what they may come to."""
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
    """Return the offer that is first worth its price as one unknown grows."""
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
