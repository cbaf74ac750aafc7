"""Where small nodes cost least: column generation chooses them for few kinds of items."""

from __future__ import annotations

from itertools import product
from math import fsum

from nodesmith.decisions.packing import Bin, Item, Packing, pack
from nodesmith.decisions.packing.columngeneration.columns import mix
from nodesmith.decisions.packing.problem import Vector

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
