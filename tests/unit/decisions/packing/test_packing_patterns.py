"""How column generation finds better patterns, and what its fractional plans cost."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from nodesmith.decisions.packing.columngeneration.columns import all_patterns, mix, solve_all_patterns
from nodesmith.decisions.packing.columngeneration.patterns import Patterns
from nodesmith.decisions.packing.problem import Bin, Item


def test_an_item_that_blocks_others_worth_more_together_is_removed_from_a_pattern() -> None:
    large, small = Item(size=(5,), count=1, per_node=1), Item(size=(3,), count=3, per_node=3)
    patterns = Patterns([large, small], [Bin("a", (10,), 1.0, admits=0b11)], np.array([5.1, 3.0]))

    patterns.search((0, 1), starts=())
    assert patterns.counts[:, 0].tolist() == [1, 1]
    patterns.refill((0, 1))

    assert patterns.counts[:, 0].tolist() == [0, 3]
    assert patterns.value.tolist() == [9.0]


@pytest.mark.parametrize("seed", range(4))
def test_a_fractional_plan_of_generated_patterns_costs_hardly_more_than_that_of_all(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a sample, no secret
    items = [
        Item((random.randint(500, 3000), random.randint(900, 9000)), random.randint(4, 14), 99)
        for _ in range(4)
    ]
    bins = [
        Bin(f"{memory}-{units}", (900 * units, memory * units), price * units, 0b1111)
        for memory, price in ((1800, 0.8), (3700, 1.0), (7500, 1.3))
        for units in (4, 6, 8)
    ]

    mixed = mix(items, bins, {}, [], 10**7)
    _, bound = solve_all_patterns(items, bins, all_patterns(items, bins), [])

    price = sum(bins[c.bin].price * amount for c, amount in zip(mixed.columns, mixed.amounts, strict=True))
    assert bound - 1e-6 <= price <= 1.001 * bound
