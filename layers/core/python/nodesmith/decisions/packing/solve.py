"""The whole packer: a quick plan, then as much thought as its distance from the lower bound is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodesmith.decisions.packing.basket import Basket, Bought
from nodesmith.decisions.packing.bound import lower_bound, resource_prices
from nodesmith.decisions.packing.exact import exact, transitions
from nodesmith.decisions.packing.greedy import fill_greedily
from nodesmith.decisions.packing.pareto import undominated
from nodesmith.decisions.packing.parts import Part, parts
from nodesmith.decisions.packing.problem import Bin, Item, Node, Packing, Purses, Vector
from nodesmith.decisions.packing.repacking import repack
from nodesmith.decisions.packing.shrinking import shrink

MOST_STEPS = 50_000_000
_GOOD_ENOUGH = 1.005
_PROVABLE = 100_000
_PROVABLE_TOGETHER = 5_000
_MENDING = 100_000
_FEW_KINDS = 60
_Prices = tuple[float, float]


def pack(
    items: Sequence[Item], bins: Sequence[Bin], purses: Purses | None = None, most_steps: int = MOST_STEPS
) -> Packing:
    """Pack as many items as bins and purses allow, at a low price.

    Of too much work for the steps a part is done and the rest is left.
    """
    spendable: Purses = dict(purses or {})
    left = [item.count for item in items]
    nodes: list[Node] = []
    bound, steps = 0.0, 0
    candidates = undominated(bins)
    originals = {b.key: b for b in candidates}
    for part in parts(items, candidates):
        basket, part_bound = _packed(part, spendable, most_steps - steps)
        spendable, steps, bound = basket.purses, steps + basket.steps, bound + part_bound
        nodes += [replace(node, bin=originals[node.bin.key]) for node in _nodes(part, basket.bought, left)]
    return Packing(tuple(nodes), tuple(left), spendable, bound, steps)


def _packed(part: Part, purses: Purses, most_steps: int) -> tuple[Basket, float]:
    """Pack one part; give the basket and the bound."""
    bins = undominated(part.bins)
    prices = resource_prices(part.items, bins)
    basket = Basket(part.items, purses)
    fill_greedily(basket, bins, prices, most_steps)
    bound = _bound(basket, bins, prices)
    if basket.price <= bound * _GOOD_ENOUGH or basket.steps >= most_steps:
        return basket, bound
    if transitions([i.count for i in part.items]) <= _PROVABLE:
        proved = _proved(basket, bins, purses)
        if proved is not None:
            return proved, proved.price
    shrink(basket, bins)
    repack(basket, bins, _PROVABLE_TOGETHER, _MENDING)
    if basket.price > bound * _GOOD_ENOUGH and len(part.items) <= _FEW_KINDS:
        other = _by_columns(basket, bins, purses, prices, most_steps)
        basket = min(basket, other, key=lambda b: b.rank)
    return basket, _bound(basket, bins, prices)


def _proved(basket: Basket, bins: Sequence[Bin], purses: Purses) -> Basket | None:
    """Give the cheapest packing of what the basket holds, if the purses pay for it."""
    held = tuple(item.count - left for item, left in zip(basket.items, basket.left, strict=True))
    best = exact(basket.items, held, bins)
    if best is None:
        return None
    proved = Basket(basket.items, purses)
    proved.steps = basket.steps + transitions(held)
    for bin_, counts in best:
        proved.buy(bin_, counts, 1)
    return proved if proved.left == basket.left else None


def _by_columns(
    quick: Basket, bins: Sequence[Bin], purses: Purses, prices: _Prices, most_steps: int
) -> Basket:
    from nodesmith.decisions.packing.linear import buy_by_columns  # numpy and HiGHS: a quarter of a second

    basket = Basket(quick.items, purses)
    basket.steps = quick.steps
    buy_by_columns(basket, bins, quick, most_steps - basket.steps)
    shrink(basket, bins)
    fill_greedily(basket, bins, prices, most_steps - basket.steps)
    repack(basket, bins, _PROVABLE_TOGETHER, _MENDING)
    return basket


def _bound(basket: Basket, bins: Sequence[Bin], prices: _Prices) -> float:
    served = [
        replace(item, count=item.count - left) for item, left in zip(basket.items, basket.left, strict=True)
    ]
    return lower_bound(served, bins, prices)


def _nodes(part: Part, bought: Sequence[Bought], left: list[int]) -> list[Node]:
    """Give what was bought in the numbers of the whole problem, and take it from what is left."""
    nodes: list[Node] = []
    for bin_, counts, repeats in bought:
        while repeats:
            held, number = _share(part.members, counts, repeats, left)
            for item, count in held:
                left[item] -= number * count
            nodes.append(Node(bin_, held, number))
            repeats -= number
    return nodes


def _share(
    members: Sequence[Vector], counts: Vector, repeats: int, left: Sequence[int]
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Name the items that a filling takes, those of lower numbers first, and how many nodes can hold the same."""
    held: list[tuple[int, int]] = []
    for numbers, count in zip(members, counts, strict=True):
        for number in numbers if count else ():
            taken = min(count, left[number])
            if taken:
                held.append((number, taken))
                repeats = min(repeats, left[number] // taken)
                count -= taken
            if not count:
                break
    return tuple(sorted(held)), repeats
