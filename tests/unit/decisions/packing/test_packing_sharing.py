"""Which items may share a node, in whatever order they are added."""

from __future__ import annotations

from nodesmith.decisions.packing import Bin, Item, pack
from nodesmith.decisions.packing.problem import Sharing

LARGE = Bin("large", (100, 100), 1.0, 0b111)


def nodes_of(*items: Item) -> list[tuple[int, ...]]:
    packing = pack(items, [LARGE])
    assert not any(packing.left)
    numbers = range(len(items))
    each = [dict(node.holds) for node in packing.nodes for _ in range(node.repeats)]
    return sorted(tuple(held.get(number, 0) for number in numbers) for held in each)


def test_a_spread_over_nodes_counts_all_selected_items() -> None:
    spread = Item((1, 1), 2, 10, caps=((7, 1),))
    selected = Item((1, 1), 3, 10, groups=(7,))

    counts = nodes_of(spread, selected)

    assert all(not on[0] or on[1] <= 1 for on in counts)


def test_an_item_that_repels_itself_gets_a_node_each() -> None:
    assert nodes_of(Item((1, 1), 3, 10, groups=(0,), caps=((0, 1),))) == [(1,), (1,), (1,)]


def test_an_item_that_repels_another_keeps_it_out_in_either_order() -> None:
    for sizes in ((1, 5), (5, 1)):
        repels = Item((sizes[0], 1), 1, 10, caps=((3, 0),))
        repelled = Item((sizes[1], 1), 1, 10, groups=(3,))

        assert nodes_of(repels, repelled) == [(0, 1), (1, 0)]


def test_a_cap_does_not_affect_items_of_other_groups() -> None:
    assert nodes_of(Item((1, 1), 1, 10, caps=((3, 0),)), Item((1, 1), 5, 10, groups=(4,))) == [(1, 5)]


def test_items_on_a_node_limit_those_added_later() -> None:
    sharing = Sharing()

    assert sharing.add(Item((1,), 9, 9, groups=(1,), caps=((1, 3),)), 9) == 3
    assert sharing.add(Item((1,), 9, 9, groups=(1,)), 9) == 0
    assert sharing.add(Item((1,), 9, 9, caps=((1, 2),)), 9) == 0
    assert sharing.add(Item((1,), 9, 9, caps=((1, 3),)), 9) == 9


def test_a_node_takes_none_of_an_item_of_which_none_are_left() -> None:
    assert Sharing().capacity(Item((1, 1), 3, 10), 0) == 0
    assert Sharing().capacity(Item((1, 1), 3, 10), -1) == 0
    assert Sharing().capacity(Item((1, 1), 3, 10), 2) == 2
