"""The search: again and again the bin that holds most for its price.

What a bin holds is worth what the lower bound's resource prices say it is worth, so cpu and memory are weighed as the
market weighs them for this demand. A filling is repeated as often as the demand allows, which makes the work grow with
kinds of items, not with their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import gt

from nodesmith.decisions.packing.problem import Bin, Item, Node, Packing, Vector

_MAX_ROUNDS = 10_000
_LEAST_WORTH = 1e-12
_Filling = tuple[Vector, float]


def pack(
    items: Sequence[Item],
    bins: Sequence[Bin],
    prices: tuple[float, float],
    purses: Mapping[int, Vector] | None = None,
) -> tuple[Packing, dict[int, Vector]]:
    """Pack as many items as the bins and purses allow; give the packing and what is left in the purses.

    `prices` weigh the first two resources, see `resource_prices`. Dominated bins (`undominated`) only cost time.
    """
    purse_left = dict(purses or {})
    left = [item.count for item in items]
    worth = [max(prices[0] * item.size[0] + prices[1] * item.size[1], _LEAST_WORTH) for item in items]
    candidates = [b for b in bins if b.admits]
    orders = [_order(candidate, items) for candidate in candidates]
    fillings: list[_Filling | None] = [None] * len(candidates)
    nodes: list[Node] = []
    steps = 0
    for _ in range(_MAX_ROUNDS):
        best: tuple[float, float, str] | None = None
        chosen: tuple[Bin, Vector] | None = None
        for index, candidate in enumerate(candidates):
            filling = fillings[index]
            if filling is None or any(map(gt, filling[0], left)):
                filling = fillings[index] = _fill(candidate, items, orders[index], left, worth)
                steps += 1
            counts, value = filling
            if value <= 0 or not _affordable(candidate, purse_left):
                continue
            rank = (candidate.price / value, -value, candidate.key)
            if best is None or rank < best:
                best, chosen = rank, (candidate, counts)
        if chosen is None:
            break
        nodes.append(_buy(*chosen, left, purse_left))
    return Packing(tuple(nodes), tuple(left), steps), purse_left


def _order(candidate: Bin, items: Sequence[Item]) -> list[int]:
    """Largest first, measured against this bin: first-fit decreasing on the scarcest resource."""

    def share(index: int) -> float:
        return max(
            (size / room if room else float(size > 0) * 2)
            for size, room in zip(items[index].size, candidate.room, strict=True)
        )

    admitted = [i for i in range(len(items)) if candidate.admits >> i & 1]
    return sorted(admitted, key=lambda i: (-share(i), i))


def _fill(
    candidate: Bin, items: Sequence[Item], order: Sequence[int], left: Sequence[int], worth: Sequence[float]
) -> _Filling:
    room: Sequence[int] = candidate.room
    counts = [0] * len(items)
    value = 0.0
    for index in order:
        count = left[index]
        if not count:
            continue
        item = items[index]
        if item.per_node < count:
            count = item.per_node
        for have, size in zip(room, item.size, strict=True):
            if count * size > have:
                count = have // size
        if count:
            counts[index] = count
            value += count * worth[index]
            room = [have - count * size for have, size in zip(room, item.size, strict=True)]
    return tuple(counts), value


def _affordable(candidate: Bin, purses: Mapping[int, Vector]) -> bool:
    purse = purses.get(candidate.purse)
    return purse is None or all(c <= have for c, have in zip(candidate.cost, purse, strict=True))


def _buy(candidate: Bin, counts: Vector, left: list[int], purses: dict[int, Vector]) -> Node:
    repeats = min(have // count for have, count in zip(left, counts, strict=True) if count)
    purse = purses.get(candidate.purse)
    if purse is not None:
        affordable = [have // cost for have, cost in zip(purse, candidate.cost, strict=True) if cost]
        repeats = min([repeats, *affordable])
        purses[candidate.purse] = tuple(
            have - repeats * cost for have, cost in zip(purse, candidate.cost, strict=True)
        )
    for index, count in enumerate(counts):
        left[index] -= repeats * count
    return Node(candidate, counts, repeats)
