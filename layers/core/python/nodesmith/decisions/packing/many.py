"""Buying for a crowd: which bins, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from nodesmith.decisions.packing.basket import Holds
from nodesmith.decisions.packing.bound import resource_prices
from nodesmith.decisions.packing.crowd import Crowd, Floats
from nodesmith.decisions.packing.problem import Bin, Item
from nodesmith.decisions.packing.spending import Spending

_SEED_BINS = 3
_SEED_STEP = 1.05
_BINS = 3
_TILTS = ((1.0, 1.0), (1.1, 1.0), (1.0, 1.1))
_LEAST_WORTH = 1e-12
_Bought = tuple[Bin, Holds, int]


def buy_for_many(
    items: Sequence[Item], bins: Sequence[Bin], spending: Spending, most_steps: int
) -> tuple[list[_Bought], list[int], int]:
    """Buy until nothing fits, the purses are empty or the steps are done; give that, what is left, and the steps."""
    market = _Market(items, bins, spending)
    bought: list[_Bought] = []
    for seed in _seeds(items):
        while market.crowd.left[seed] > 0 and market.crowd.steps < most_steps:
            found = market.around(seed)
            if found is None:
                break
            bought.append(market.buy(*found))
    waiting = np.argsort(-market.crowd.worth, kind="stable").tolist()
    while market.crowd.steps < most_steps:
        found = market.fullest()
        while found is None and waiting:
            found = market.around(waiting[0]) if market.crowd.left[waiting[0]] > 0 else None
            if found is None:
                waiting.pop(0)
        if found is None:
            break
        bought.append(market.buy(*found))
    return bought, market.crowd.left.tolist(), market.crowd.steps


def _seeds(items: Sequence[Item]) -> list[int]:
    """Give the items of which a node holds few, of those of the most nodes first, the largest first."""
    totals: dict[int, int] = {}
    for item in items:
        for group in item.groups:
            totals[group] = totals.get(group, 0) + item.count
    nodes = {
        number: max(
            [item.count / item.per_node if item.per_node < item.count else 0.0]
            + [
                totals[group] / most
                for group, most in item.caps
                if group in item.groups and 0 < most < totals[group]
            ]
        )
        for number, item in enumerate(items)
    }
    wanted = [number for number, most in nodes.items() if most]
    return sorted(wanted, key=lambda number: (-nodes[number], tuple(-s for s in items[number].size), number))


class _Market:
    """The bins, by what they admit and in order of price."""

    def __init__(self, items: Sequence[Item], bins: Sequence[Bin], spending: Spending) -> None:
        self._spending = spending
        self._bins: dict[int, list[Bin]] = {}
        for each in sorted(bins, key=lambda b: (b.price, b.key)):
            self._bins.setdefault(each.admits, []).append(each)
        self._rooms = {
            mask: np.array([b.room for b in group], dtype=np.float64) for mask, group in self._bins.items()
        }
        self._prices = {mask: np.array([b.price for b in group]) for mask, group in self._bins.items()}
        self.crowd = Crowd(items, list(self._bins), _even_prices(items, bins))

    def around(self, seed: int) -> _Bought | None:
        """Give a node for one item and the company that wastes least money."""
        best: tuple[float, float, str] | None = None
        chosen: _Bought | None = None
        for candidate in self._around(seed):
            value, holds = self.crowd.fill(candidate, seed)
            rank = candidate.price - value, candidate.price, candidate.key
            if holds and (best is None or rank < best):
                best, chosen = rank, (candidate, holds, self.crowd.repeats(holds))
        return chosen

    def _around(self, seed: int) -> list[Bin]:
        """Give bins for one item: the cheapest that holds it, and some that cost a little more each."""
        size = self.crowd.size[:, seed]
        choices: list[tuple[float, float, int, list[Bin]]] = []
        for mask, group in self._bins.items():
            if not self.crowd.admits[mask][seed]:
                continue
            able = (group[n] for n in np.flatnonzero((self._rooms[mask] >= size).all(axis=1)).tolist())
            steps = list(_steps(b for b in able if self._spending.affords(b)))
            if steps:
                choices.append((steps[0].price, -self._waiting(mask), mask, steps))
        return min(choices, key=lambda c: c[:3])[3] if choices else []

    def _waiting(self, mask: int) -> float:
        """Tell what all that is left and admitted is worth."""
        return float((self.crowd.worth * self.crowd.left) @ self.crowd.admits[mask])

    def fullest(self) -> _Bought | None:
        """Give the node that holds most for its price, of the bins that could hold most."""
        best: tuple[float, float, str] | None = None
        chosen: _Bought | None = None
        for candidate in self._promising():
            value, holds = self.crowd.fill(candidate)
            rank = candidate.price / max(value, _LEAST_WORTH), -value, candidate.key
            if holds and (best is None or rank < best):
                best, chosen = rank, (candidate, holds, self.crowd.repeats(holds))
        return chosen

    def _promising(self) -> list[Bin]:
        found: list[tuple[float, float, Bin]] = []
        for mask, group in self._bins.items():
            mine = self.crowd.admits[mask] * self.crowd.left
            most = (self.crowd.size @ mine) * self.crowd.prices
            if not mine.any():
                continue
            value = np.minimum(self._rooms[mask] * self.crowd.prices, most).sum(axis=1)
            rank = self._prices[mask] / np.maximum(value, _LEAST_WORTH)
            waiting = self._waiting(mask)
            nearest = np.argsort(rank, kind="stable")[: 4 * _BINS].tolist()
            found += [
                (float(rank[n]), -waiting, group[n]) for n in nearest if self._spending.affords(group[n])
            ]
        found.sort(key=lambda f: (f[0], f[1], f[2].key))
        return list({(b.price, b.room): b for _, _, b in reversed(found)}.values())[::-1][:_BINS]

    def buy(self, candidate: Bin, holds: Holds, repeats: int) -> _Bought:
        """Buy it, or a cheaper bin that holds the same."""
        cheaper = self._cheapest(candidate, holds)
        number = min(repeats, self._spending.affords(cheaper))
        self._spending.spend(cheaper, number)
        self.crowd.take(holds, number)
        return cheaper, holds, number

    def _cheapest(self, candidate: Bin, holds: Holds) -> Bin:
        held = [item for item, _ in holds]
        counts = np.array([number for _, number in holds])
        size = self.crowd.size[:, held] @ counts
        for mask, group in self._bins.items():
            if self.crowd.admits[mask][held].all():
                for n in np.flatnonzero((self._rooms[mask] >= size).all(axis=1)).tolist():
                    if group[n].price >= candidate.price:
                        break
                    if self._spending.affords(group[n]):
                        candidate = group[n]
                        break
        return candidate


def _steps(bins: Iterable[Bin]) -> Iterator[Bin]:
    """Give some of these bins, which come in order of price, each dearer by a step than the one before."""
    last, number = 0.0, 0
    for each in bins:
        if each.price >= last * _SEED_STEP:
            yield each
            last, number = each.price, number + 1
            if number == _SEED_BINS:
                break


def _even_prices(items: Sequence[Item], bins: Sequence[Bin]) -> Floats:
    """Give prices of a unit of each resource, between those that a little more demand for one or the other makes."""
    rooms = list({(b.room, b.price): b for b in bins}.values())
    total = [sum(i.size[axis] * i.count for i in items) for axis in range(len(items[0].size))]
    found = []
    for tilt in _TILTS:
        demand = replace(
            items[0],
            size=tuple(int(t * f) for t, f in zip(total, (*tilt, *[1.0] * len(total)), strict=False)),
            count=1,
        )
        found.append(resource_prices([demand], rooms))
    prices: Floats = np.array(found).mean(axis=0)
    return prices
