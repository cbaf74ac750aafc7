"""A small linear program without a library: the best prices of things, given offers of them. The simplex method.

The hot path imports neither numpy nor HiGHS, and its programs have a dozen unknowns.
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
    asked = dict.fromkeys(n for n in usual if n is not None)
    gains = [1.0] * things + [-1.0] * charged
    found: _Row = [0.0] * len(gains)
    for _ in range(_MOST_ROUNDS):
        found = _optimum([[*offers[n][0], offers[n][1]] for n in asked], len(gains), gains)
        excess = {
            n: fsum(map(mul, found, row)) - price for n, (row, price) in enumerate(offers) if n not in asked
        }
        violated = [n for n, amount in excess.items() if amount > _TOLERANCE * (1 + offers[n][1])]
        if not violated:
            break
        asked |= dict.fromkeys(sorted(violated, key=lambda n: (-excess[n], n))[: 2 * len(gains)])
    return found[things:]


def _optimum(rows: list[_Row], unknowns: int, gained: Sequence[float] = ()) -> _Row:
    """Maximize the sum of the unknowns, each times what is gained by it: 1 by default.

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
