"""Limits that do not cover everything are spent on what serves most items, at the lowest price."""

from __future__ import annotations

from nodesmith.decisions.packing import Bin, Item, pack

ONE_NODE = {0: (1,)}


def bin_(key: str, capacity: int, price: float, admits: int, *, limited: bool) -> Bin:
    return Bin(key, (capacity, capacity), price, admits, *((0, (1,)) if limited else ()))


def test_the_only_node_within_the_limit_holds_both_items_rather_than_one_for_less() -> None:
    items = [Item((8, 8), 1, 1), Item((5, 5), 1, 1)]
    bins = [bin_("small", 9, 1.0, 0b10, limited=True), bin_("large", 16, 4.0, 0b11, limited=True)]

    packing = pack(items, bins, ONE_NODE)

    assert [(node.bin.key, node.holds) for node in packing.nodes] == [("large", ((0, 1), (1, 1)))]
    assert packing.left == (0, 0)
    assert packing.limits == {0: (0,)}


def test_a_limited_cheap_bin_goes_to_the_item_without_an_alternative() -> None:
    items = [Item((5, 5), 1, 1), Item((6, 6), 1, 1)]
    bins = [
        bin_("bargain", 6, 1.0, 0b11, limited=True),
        bin_("dear", 6, 2.0, 0b01, limited=False),
    ]

    packing = pack(items, bins, ONE_NODE)

    assert {node.bin.key: node.holds for node in packing.nodes} == {"bargain": ((1, 1),), "dear": ((0, 1),)}


def test_a_limit_of_zero_allows_nothing() -> None:
    packing = pack([Item((5, 5), 3, 3)], [bin_("any", 9, 1.0, 1, limited=True)], {0: (0,)})

    assert packing.nodes == ()
    assert packing.left == (3,)
