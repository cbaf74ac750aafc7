"""Where small nodes cost least: nodes are chosen by column generation, for few kinds of items and for many."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import fsum, inf

import pytest

from nodesmith.decisions.packing import Bin, Item, Packing, pack
from nodesmith.decisions.packing.columngeneration.columns import mix
from nodesmith.decisions.packing.problem import Vector
from nodesmith.decisions.packing.reduction import filled, parts, undominated
from nodesmith.decisions.packing.sequential import sequential_plans

CPU_MILLI, MEBIBYTES = (100, 250, 500, 1000, 1500), (100, 256, 512, 1024, 2048, 4096)
SIZES = [(cpu, memory, 1) for cpu, memory in product(CPU_MILLI, MEBIBYTES)]
COUNTS = [7, 6, 7, 9, 4, 8, 2, 7, 11, 6, 12, 6, 9, 6, 5, 4, 8, 10, 7, 4, 6, 4, 5, 6, 5, 6, 7, 8, 6, 9]
OFFERS: dict[str, tuple[Vector, float]] = {
    "t4g.micro": ((1930, 489, 4), 0.00294),
    "t3a.micro": ((1930, 548, 4), 0.00329),
    "t4g.small": ((1930, 1385, 11), 0.00588),
    "t4g.medium": ((1930, 3244, 17), 0.01176),
    "r6g.medium": ((940, 7048, 8), 0.01764),
    "t4g.large": ((1930, 7068, 35), 0.02352),
    "x2gd.medium": ((940, 14788, 8), 0.029225),
    "r6g.large": ((1930, 14788, 29), 0.03528),
    "t4g.xlarge": ((3920, 14788, 58), 0.04704),
    "t4g.2xlarge": ((7910, 30148, 58), 0.09408),
}
"""Spot prices of instance types with what their nodes have left for pods: cpu, memory and pods."""


def offered(items: list[Item]) -> list[Bin]:
    everything = (1 << len(items)) - 1
    return [Bin(name, capacity, price, everything) for name, (capacity, price) in OFFERS.items()]


def few_kinds() -> list[Item]:
    return [Item(size, count, count) for size, count in zip(SIZES, COUNTS, strict=True)]


def many_kinds() -> list[Item]:
    """Return eight pods of each of 45 workloads, of which a node holds one at most."""
    return [Item((cpu + n, mebibytes + n, 1), 8, 1) for n, (cpu, mebibytes, _) in enumerate(SIZES[::2] * 3)]


@cache
def packed_many() -> Packing:
    return pack(many_kinds(), offered(many_kinds()))


def rules_between_kinds() -> list[Item]:
    """Return pods of 15 sizes of three workloads; a node holds at most one pod of the first."""
    rules = (((0, 1),), (), ())
    return [Item(size, 3, 3, (n,), caps) for size in SIZES[::2] for n, caps in enumerate(rules)]


def loads(packing: Packing) -> list[tuple[Bin, dict[int, int]]]:
    return [(node.bin, dict(node.holds)) for node in packing.nodes for _ in range(node.repeats)]


def assert_is_valid(items: list[Item], packing: Packing) -> None:
    packed = [0] * len(items)
    for bin_, held in loads(packing):
        for axis, capacity in enumerate(bin_.capacity):
            assert sum(items[number].size[axis] * count for number, count in held.items()) <= capacity
        for number, count in held.items():
            packed[number] += count
            assert count <= items[number].per_node
            for group, most in items[number].caps:
                assert sum(n for other, n in held.items() if group in items[other].groups) <= most
    assert packed == [item.count for item in items]


def test_few_kinds_of_items_are_packed_close_to_the_fractional_plan() -> None:
    items = few_kinds()
    bins = offered(items)
    packing = pack(items, bins)
    assert_is_valid(items, packing)
    mixed = mix(items, bins, {}, (), 10_000_000)
    fractional = fsum(bins[c.bin].price * n for c, n in zip(mixed.columns, mixed.amounts, strict=True))
    assert packing.price <= fractional * 1.04


def test_many_kinds_of_items_are_packed_for_much_less_than_one_by_one() -> None:
    items, packing = many_kinds(), packed_many()
    assert_is_valid(items, packing)
    (part,) = parts(items, undominated(filled(items, offered(items))))
    first = next(sequential_plans(part.items, part.bins, {}, 10_000_000))
    assert not any(first.left)
    assert packing.price <= 0.93 * fsum(bin_.price * repeats for bin_, _, repeats in first.bought)
    assert packing.bound <= packing.price


def test_nodes_hold_only_items_that_may_share_them() -> None:
    items = rules_between_kinds()
    assert_is_valid(items, pack(items, offered(items)))


@pytest.mark.parametrize("nodes", [3, 30])
def test_a_limit_holds_for_nodes_of_many_kinds_of_items(nodes: int) -> None:
    items = rules_between_kinds()
    everything = (1 << len(items)) - 1
    bins = [
        Bin(name, capacity, price, everything, limit=0, cost=(1,))
        for name, (capacity, price) in OFFERS.items()
    ]
    packing = pack(items, bins, {0: (nodes,)})
    assert len(loads(packing)) <= nodes
    assert packing.limits[0][0] == nodes - len(loads(packing))


def test_a_quick_plan_for_many_kinds_takes_no_columns() -> None:
    items = many_kinds()
    assert pack(items, offered(items), good_enough=inf).steps < 100_000 < packed_many().steps
