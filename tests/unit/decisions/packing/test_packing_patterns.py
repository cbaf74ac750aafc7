"""How column generation finds a better pattern for a bin."""

from __future__ import annotations

import numpy as np

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
