"""Limits that do not cover everything are spent on what serves most items, at the lowest price."""

from __future__ import annotations

import pytest

from nodesmith.decisions.packing import Bin, Item, Packing, Vector, pack

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


SIZES = {"small": (10, 1.0), "medium": (60, 7.0), "large": (380, 50.0), "huge": (400, 900.0)}
"""The capacity and price of bins: the larger a bin, the more it costs for what it holds."""


def packed(items: list[Item], nodes: int) -> Packing:
    bins = [
        bin_(key, size, price, (1 << len(items)) - 1, limited=True) for key, (size, price) in SIZES.items()
    ]
    return pack(items, bins, {0: (nodes,)})


def bought(packing: Packing) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in packing.nodes:
        found[node.bin.key] = found.get(node.bin.key, 0) + node.repeats
    return found


def test_a_limit_of_one_node_goes_to_a_large_one_but_not_to_one_that_costs_far_more_for_few_more_items() -> (
    None
):
    packing = packed([Item((1, 1), 1000, 1000)], nodes=1)
    assert (bought(packing), packing.left) == ({"large": 1}, (620,))


def test_the_nodes_of_a_limit_are_only_as_large_as_they_must_be_to_hold_all_items() -> None:
    packing = packed([Item((1, 1), 1000, 1000)], nodes=20)
    assert packing.left == (0,)
    assert "huge" not in bought(packing)
    assert packing.price < 1000 / 380 * 50 + 7
    assert sum(bought(packing).values()) <= 20


@pytest.mark.parametrize("kinds", [30, 60, 150])
def test_a_limit_of_few_nodes_serves_items_of_many_kinds(kinds: int) -> None:
    items = [Item((size, size), 20, 20) for size in range(1, kinds + 1)]
    total = sum(item.size[0] * item.count for item in items)
    nodes = total // 380 + kinds // 10
    packing = packed(items, nodes)
    assert not any(packing.left)
    assert sum(bought(packing).values()) <= nodes
    assert bought(packing).get("huge", 0) <= nodes // 10


def test_a_limit_on_cpu_goes_to_bins_with_more_memory_if_that_is_what_items_need() -> None:
    def memory_bin(key: str, memory: int, price: float) -> Bin:
        return Bin(key, (10, memory), price, 1, 0, (10,))

    cpu_limit: Vector = (100,)
    bins = [memory_bin("compute", 20, 1.0), memory_bin("memory", 80, 5.0)]
    packing = pack([Item((0, 1), 700, 700)], bins, {0: cpu_limit})
    assert packing.left == (0,)
    assert bought(packing) == {"memory": 9, "compute": 1} or bought(packing) == {"memory": 9}


def test_bins_that_commitments_pay_for_take_part_in_a_limit_on_nodes() -> None:
    demand = Bin("demand", (60, 60), 7.0, 1, 0, (0, 1))
    paid = Bin("paid", (60, 60), 0.5, 1, 0, (10, 1), demand, paid_axis=0, unpaid_price=7.0)
    large = Bin("large", (380, 380), 50.0, 1, 0, (0, 1))

    packing = pack([Item((1, 1), 800, 800)], [paid, demand, large], {0: (25, 4)})

    assert packing.left == (0,)
    assert {node.bin.whole_key: node.repeats for node in packing.nodes} == {"large": 2, "paid": 1}
    assert packing.limits == {0: (15, 1)}
    least = pack([Item((1, 1), 800, 800)], [paid, demand], {0: (25, 4)})
    assert (least.left, sum(node.repeats for node in least.nodes)) == ((560,), 4)
