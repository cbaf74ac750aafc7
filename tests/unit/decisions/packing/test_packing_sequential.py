"""Many kinds of items: the same rules hold as for few, and the price is near the bound."""

from __future__ import annotations

from itertools import islice
from math import fsum, inf
from operator import le
from random import Random

import numpy as np
import pytest

from nodesmith.decisions.packing import Bin, Item, Packing, pack
from nodesmith.decisions.packing.bound import even_prices
from nodesmith.decisions.packing.byclass import pack_by_class
from nodesmith.decisions.packing.filling import ItemPool
from nodesmith.decisions.packing.problem import RemainingLimits
from nodesmith.decisions.packing.reduction import parts
from nodesmith.decisions.packing.sequential import SequentialPlan, sequential_plans

GROUP = 7


def ladder(kinds: int, largest: int = 64) -> list[Bin]:
    """Return bins of 1 to 64 units in three ratios of cpu to memory, with prices proportional to the units."""
    everything = (1 << kinds) - 1
    return [
        Bin(
            f"{shape}-{units}",
            (1000 * units - 90, memory * units - 50, 110),
            round(price * units, 4),
            everything,
        )
        for shape, memory, price in (("c", 2000, 0.8), ("m", 4000, 1.0), ("r", 8000, 1.3))
        for units in (1, 2, 4, 8, 16, 32, largest)
    ]


def pool(kinds: int, seed: int) -> list[Item]:
    random = Random(seed)  # noqa: S311 - a sample, no secret
    return [Item((random.randint(50, 3000), random.randint(50, 9000), 1), 1, 1) for _ in range(kinds)]


def price(plan: SequentialPlan) -> float:
    assert not any(plan.left)
    return fsum(bin_.price * repeats for bin_, _, repeats in plan.bought)


def check(items: list[Item], packing: Packing) -> None:
    packed = [0] * len(items)
    for node in packing.nodes:
        for axis, capacity in enumerate(node.bin.capacity):
            assert sum(items[i].size[axis] * n for i, n in node.holds) <= capacity
        for i, n in node.holds:
            packed[i] += n * node.repeats
            assert n <= items[i].per_node
            assert node.bin.admits >> i & 1
            for group, most in items[i].caps:
                assert sum(m for j, m in node.holds if group in items[j].groups) <= most
    assert packed == [item.count - left for item, left in zip(items, packing.left, strict=True)]


@pytest.mark.parametrize("seed", range(3))
def test_many_kinds_without_caps_are_packed_near_the_bound(seed: int) -> None:
    items = pool(300, seed)
    packing = pack(items, ladder(300))

    check(items, packing)
    assert not any(packing.left)
    assert packing.bound <= packing.price <= 1.08 * packing.bound


def test_items_that_repel_each_other_get_a_node_each_and_others_fill_these_nodes() -> None:
    lonely = [Item((500 + n, 900, 1), 1, 1, (GROUP,), ((GROUP, 1),)) for n in range(60)]
    others = pool(120, 1)

    def sold(kinds: int) -> list[Bin]:
        return [b for b in ladder(kinds) if b.capacity[0] >= 3910]

    together = pack([*lonely, *others], sold(180))

    check([*lonely, *others], together)
    assert not any(together.left)
    apart = pack(lonely, sold(60)).price + pack(others, sold(120)).price
    assert together.price < 0.95 * apart


def test_caps_of_many_kinds_hold_at_once() -> None:
    random = Random(3)  # noqa: S311 - a sample, no secret
    items = [
        Item(
            item.size,
            random.randint(1, 4),
            random.randint(1, 4),
            tuple(sorted(random.sample(range(6), random.randint(0, 2)))),
            tuple((g, random.randint(0, 3)) for g in random.sample(range(6), random.randint(0, 2))),
        )
        for item in pool(200, 2)
    ]
    packing = pack(items, ladder(len(items)))

    check(items, packing)
    for item, left in zip(items, packing.left, strict=True):
        assert left == (item.count if item.most == 0 else 0)


def test_items_that_join_a_node_count_against_the_cap_of_what_it_holds() -> None:
    items = [Item((1, 1), 1, 1, (GROUP,), ((GROUP, 3),)), Item((1, 1), 5, 5, (GROUP,))]
    roomy = Bin("roomy", (10, 10), 1.0, 0b11)

    for plan in islice(sequential_plans(items, [roomy], {}, 1000), 2):
        assert not any(plan.left)
        assert plan.bought == [(roomy, ((0, 1), (1, 2)), 1), (roomy, ((1, 3),), 1)]


def test_nodes_for_the_items_that_need_the_most_nodes_are_bought_first() -> None:
    few, many = (Item((6, 6), count, count, (group,), ((group, 1),)) for group, count in ((1, 2), (2, 5)))
    narrow = Bin("narrow", (10, 10), 1.0, 0b11)

    _, plan = islice(sequential_plans([few, many], [narrow], {}, 1000), 2)

    assert not any(plan.left)
    assert plan.bought == [(narrow, ((1, 1),), 5), (narrow, ((0, 1),), 2)]


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_no_cheaper_bin_holds_the_items_of_a_node(seed: int) -> None:
    """The cheapest plan of the last problem is the quick plan with cheaper bins for the same contents."""
    random = Random(seed)  # noqa: S311 - a sample, no secret
    sizes = [
        ((random.randint(100, 6000), random.randint(100, 16000), 1), random.randint(1, 4)) for _ in range(100)
    ]
    items, bins = [Item(size, count, count) for size, count in sizes], ladder(100)

    packing = pack(items, bins)

    assert not any(packing.left)
    for node in packing.nodes:
        held = [sum(items[i].size[axis] * n for i, n in node.holds) for axis in range(3)]
        enough = [b for b in bins if all(map(le, held, b.capacity))]
        assert node.bin.price == min(b.price for b in enough)


def test_many_kinds_do_not_exceed_the_limit() -> None:
    items = pool(200, 4)
    bins = [Bin(b.key, b.capacity, b.price, b.admits, 0, (b.capacity[0], 1)) for b in ladder(200)]
    packing = pack(items, bins, {0: (100_000, 5)})

    check(items, packing)
    assert sum(node.repeats for node in packing.nodes) <= 5
    assert any(packing.left)
    assert min(packing.limits[0]) >= 0


def test_a_partial_plan_remains_if_steps_run_out() -> None:
    items = pool(300, 5)
    packing = pack(items, ladder(300), most_steps=60)

    check(items, packing)
    assert 0 < sum(packing.left) < 300


def test_an_item_is_packed_even_if_its_only_bin_never_ranks_first() -> None:
    """Bins that rank first hold none of it, and the first node around it takes another item that exists only once."""
    items = [Item((3900, 100), 2, 2), Item((10, 3000), 1, 1)]
    small = [Bin(f"small-{n}", (3000, 2000), 0.1 + n / 1000, 0b11) for n in range(3)]
    bins = [*small, Bin("big", (4000, 4000), 1.0, 0b11)]

    _, plan = islice(sequential_plans(items, bins, {}, 1000), 2)

    assert not any(plan.left)
    assert [(bin_.key, held, repeats) for bin_, held, repeats in plan.bought] == [
        ("big", ((0, 1), (1, 1)), 1),
        ("big", ((0, 1),), 1),
    ]


def test_the_order_of_bins_does_not_affect_many_kinds() -> None:
    items, bins = pool(150, 6), ladder(150)

    assert pack(items, bins[::-1]) == pack(items, bins)


def test_items_that_fit_nowhere_are_left_and_the_rest_is_packed() -> None:
    items = [*pool(80, 7), Item((10**6, 1, 1), 3, 3)]
    packing = pack(items, ladder(len(items)))

    assert packing.left == (*[0] * 80, 3)


def test_bins_that_cost_nothing_are_used() -> None:
    items = pool(80, 8)
    bins = [Bin(b.key, b.capacity, 0.0, b.admits) for b in ladder(80)]

    assert not any(pack(items, bins).left)
    assert not any(pack(items[:3], bins).left)


def test_cheap_bins_that_hold_hardly_any_item_do_not_distort_prices() -> None:
    """Their cpu is nearly free, but they lack the memory to use it: prices derived from them would mislead."""
    items = pool(300, 3)
    nanos = [Bin(f"nano-{n}", (1930, 40 + n, 4), 0.05, (1 << 300) - 1) for n in range(5)]
    packing = pack(items, [*ladder(300), *nanos])

    check(items, packing)
    assert packing.price <= 1.01 * pack(items, ladder(300)).price


def test_items_admitted_only_by_expensive_bins_still_share_large_nodes() -> None:
    """At the prices of other bins, a small node each would waste least; a large one for all costs a third of that."""
    anywhere, dear_only = [
        [Item((90 + n, 100), 12, 12) for n in range(25)],
        [Item((60 + n, 50), 12, 12) for n in range(25)],
    ]
    everybody, all_anywhere = (1 << 50) - 1, (1 << 25) - 1
    bins = [
        Bin("bargain", (3_200, 12_800), 1.0, all_anywhere),
        Bin("dear-small", (94, 170), 0.11, everybody),
        Bin("dear-large", (3_200, 12_800), 3.0, everybody),
    ]

    packing = pack([*anywhere, *dear_only], bins)

    assert sum(packing.left) == 0
    assert {node.bin.key for node in packing.nodes} <= {"bargain", "dear-large"}


def test_no_bound_is_computed_if_it_is_not_requested() -> None:
    items = pool(200, 5)
    bounded, unbounded = (
        pack(items, ladder(200), bounded=requested, good_enough=inf) for requested in (True, False)
    )

    assert bounded.nodes == unbounded.nodes
    assert bounded.price * 0.8 < bounded.bound <= bounded.price
    assert unbounded.bound == 0


def few_classes(kinds: int, seed: int) -> list[Item]:
    """Return items of six sizes in groups of their own, of which every fourth excludes all others like it."""
    random = Random(seed)  # noqa: S311 - a sample, no secret
    sizes = [(cpu, memory, 1) for cpu in (250, 1000) for memory in (500, 1900, 4000)]
    found = []
    for number in range(kinds):
        groups = (GROUP,) if number % 4 == 0 else (10 + number % 5,)
        caps = ((GROUP, 1),) if number % 4 == 0 else ((10 + random.randrange(5), 2),) * (number % 3 == 0)
        count = random.randint(1, 3)
        found.append(Item(random.choice(sizes), count, count, groups, caps))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_kinds_of_few_classes_cost_less_by_class_than_one_by_one(seed: int) -> None:
    items = few_classes(120, seed)
    packing = pack(items, ladder(120))
    (part,) = parts(items, ladder(120))
    alone = price(next(sequential_plans(part.items, part.bins, {}, 10**6)))

    check(items, packing)
    assert not any(packing.left)
    assert packing.bound <= packing.price < alone


def test_a_plan_by_class_that_is_near_its_bound_is_the_only_one_made() -> None:
    items, bins = few_classes(120, 0), ladder(120)
    (part,) = parts(items, bins)
    made = pack_by_class(part.items, part.bins, RemainingLimits({}), 10**6)
    packing = pack(items, bins)

    assert made is not None
    assert packing.price <= 1.1 * packing.bound
    assert packing.steps == made[2]


@pytest.mark.parametrize(
    ("dear", "is_made"),
    [
        pytest.param(range(0), True, id="none"),
        pytest.param(range(2, 9), False, id="nodes of the size of a share, although larger ones are not"),
        pytest.param(range(9, 33), True, id="only larger nodes"),
    ],
)
def test_no_plan_by_class_is_made_if_nodes_of_the_size_of_a_share_are_dear(
    dear: range, is_made: bool
) -> None:
    """A share, an item that excludes others and its part of the rest, is worth 2.4 units."""
    everything = (1 << 120) - 1
    bins = [
        Bin(
            f"u-{units}",
            (1000 * units, 4000 * units, 110),
            (2.0 if units in dear else 1.0) * units,
            everything,
        )
        for units in range(1, 33)
    ]

    made = pack_by_class(few_classes(120, 1), bins, RemainingLimits({}), 10**6)

    assert (made is not None) == is_made


def test_kinds_of_few_classes_cost_no_more_than_one_by_one_where_small_nodes_have_cheap_cpu() -> None:
    """Of burstable types a node of half the memory, at half the price, has as many processors."""
    items = few_classes(120, 1)
    masks = (1 << len(items)) - 1
    bins = [Bin(f"t-{gib}", (2000, gib * 1000, 100), gib * 0.1, masks) for gib in (1, 2, 4, 8, 16, 32)]
    packing = pack(items, bins)
    (part,) = parts(items, bins)
    alone = price(next(sequential_plans(part.items, part.bins, {}, 10**6)))

    check(items, packing)
    assert not any(packing.left)
    assert packing.price <= alone * 1.000001


def test_kinds_of_few_classes_do_not_exceed_the_limit_and_one_that_fits_nowhere_is_left() -> None:
    items = [*few_classes(119, 4), Item((10**6, 1, 1), 1, 1)]
    bins = [Bin(b.key, b.capacity, b.price, b.admits, 0, (b.capacity[0], 1)) for b in ladder(120)]
    packing = pack(items, bins, {0: (60_000, 7)})

    check(items, packing)
    assert 0 < sum(node.repeats for node in packing.nodes) <= 7
    assert packing.left[-1] == 1


def test_kinds_without_classes_in_common_are_not_packed_by_class() -> None:
    assert pack_by_class(pool(300, 1), ladder(300), RemainingLimits({}), 10**6) is None


def test_plans_get_cheaper_as_the_worth_of_items_is_corrected() -> None:
    problems = [(pool(200, seed), ladder(200)) for seed in range(4)]

    plans = [[*map(price, islice(sequential_plans(*each, {}, 1_000_000), 6))] for each in problems]

    assert sum(min(corrected) for _, _, *corrected in plans) < sum(
        min(before) for *before, _, _, _, _ in plans
    )


@pytest.mark.parametrize("seed", range(6))
def test_no_bin_gives_more_worth_for_its_price_than_the_first_node_although_few_are_filled(seed: int) -> None:
    items, bins = pool(150, seed), ladder(150)
    prices = np.array(even_prices(items, bins))
    left = ItemPool(items, [bins[0].admits], prices, np.array([item.size for item in items]) @ prices)

    (bought, holds, _), *_ = next(sequential_plans(items, bins, {}, 1_000_000)).bought

    each = [bin_.price / left.value(held) for bin_, held in zip(bins, left.fill(bins, None), strict=True)]
    assert bought.price / left.value(holds) == pytest.approx(min(each))


def test_workloads_with_odd_sizes_and_anti_affinity_are_packed_near_the_bound() -> None:
    """A node holds one pod of a workload at most. Its other pods must come from many workloads."""
    random = Random(1)  # noqa: S311 - a sample, no secret
    items = [
        Item((random.randint(50, 2000), random.randint(64, 4096), 1), random.randint(2, 6), 1)
        for _ in range(150)
    ]
    packing = pack(items, ladder(150))

    check(items, packing)
    assert not any(packing.left)
    assert packing.price <= 1.05 * packing.bound


def test_a_plan_that_need_not_be_good_is_the_first_one() -> None:
    items, bins = pool(150, 9), ladder(150)

    quick, good = pack(items, bins, good_enough=inf), pack(items, bins)

    assert quick.price == price(next(sequential_plans(items, bins, {}, 1_000_000)))
    assert good.price < quick.price
    assert good.steps > quick.steps


def test_of_very_many_items_a_node_chooses_among_a_sample_and_all_are_packed() -> None:
    items = pool(1200, 10)
    packing = pack(items, ladder(1200))

    check(items, packing)
    assert not any(packing.left)
    assert packing.price <= 1.05 * packing.bound


def test_a_node_is_given_what_it_held_before_until_that_is_no_longer_left() -> None:
    items = [Item((1000, 1000, 1), 3, 3), Item((400, 400, 1), 1, 1)]
    node = Bin("a", (1500, 1500, 10), 1.0, 0b11)
    pool = ItemPool(items, [0b11], np.array([1.0, 1.0, 0.0]), np.array([2000.0, 800.0]))
    assert pool.fill([node, node], None) == [((0, 1), (1, 1))] * 2
    steps_once = pool.steps
    pool.take(((0, 1),), 1)
    assert pool.fill([node], None) == [((0, 1), (1, 1))]
    assert pool.steps == steps_once + 1
    pool.take(((1, 1),), 1)
    assert pool.fill([node], None) == [((0, 1),)]
