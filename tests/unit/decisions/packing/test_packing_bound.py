"""What the lower bound takes into account: every resource, every cap, and bins too small to be of use."""

from __future__ import annotations

from nodesmith.decisions.packing import Bin, Item, commitment_prices, lower_bound, resource_prices
from nodesmith.decisions.packing.reduction import filled, usable
from nodesmith.decisions.packing.simplex import scarcity

WEB, API = Item((1, 2, 1), 40, 40), Item((2, 2, 1), 30, 30)


def test_the_bound_counts_the_limit_of_pods_per_node_if_it_binds() -> None:
    few = Bin("few", (1000, 1000, 10), 1.0, 0b11)

    assert abs(lower_bound([WEB, API], [few]) - 7.0) < 1e-9


def test_a_resource_that_only_some_items_need_is_paid_by_these_alone() -> None:
    plain, gpu = Bin("plain", (10, 20, 0), 1.0, 0b11), Bin("gpu", (10, 20, 4), 5.0, 0b11)
    training, web = Item((1, 2, 1), 40, 40), Item((1, 2, 0), 60, 60)

    assert abs(lower_bound([training, web], [plain, gpu]) - 50.0) < 1e-9


def test_items_that_repel_each_other_need_a_node_each() -> None:
    apart = [Item((1, 1, 1), 5, 5, (7,), ((7, 1),)), Item((2, 1, 1), 4, 4, (7,), ((7, 1),))]

    assert abs(lower_bound(apart, [Bin("large", (100, 100, 100), 2.0, 0b11)]) - 18.0) < 1e-9


def test_each_item_with_a_cap_takes_its_share_of_a_node() -> None:
    apart = [Item((1, 1, 1), 20, 20, (7,), ((7, 2),)), Item((2, 1, 1), 12, 12, (7,), ((7, 4),))]

    assert abs(lower_bound(apart, [Bin("large", (100, 100, 100), 1.0, 0b11)]) - 13.0) < 1e-9


def test_bins_that_admit_none_of_the_items_that_repel_each_other_do_not_lower_the_bound() -> None:
    items = [Item((1, 1, 1), 5, 5, (7,), ((7, 1),)), Item((1, 1, 1), 1, 1)]
    bins = [Bin("cheap", (9, 9, 9), 0.1, 0b10), Bin("dear", (9, 9, 9), 2.0, 0b11)]

    assert lower_bound(items, bins, few_kinds=0) > 9.99


def test_bins_too_small_for_any_item_do_not_lower_the_bound() -> None:
    nano, real = Bin("nano", (2, 1, 4), 0.01, 0b11), Bin("real", (4, 8, 50), 1.0, 0b11)
    alone = lower_bound([WEB, API], [real])

    assert alone > 20
    assert lower_bound([WEB, API], [nano, real]) == alone


def test_kinds_that_only_large_bins_hold_are_bounded_by_the_price_of_these() -> None:
    small, large = Bin("small", (4, 4), 0.1, 2**60 - 1), Bin("large", (16, 16), 4.0, 2**60 - 1)
    pods = [Item((5 + n % 3, 5 + n // 3), 1, 1) for n in range(60)]

    assert lower_bound(pods, [small, large]) > 0.9 * lower_bound(pods, [large]) > 60


def test_capacity_that_no_whole_item_can_use_is_not_counted() -> None:
    bins = [Bin(f"size-{n}", (10 * n - 1, 100), float(n), 2**50 - 1) for n in range(1, 9)]
    pods = [Item((10 if n % 2 else 5, 1), 20, 20) for n in range(50)]

    # In fives, the largest bin has 15 for a price of 8, and the pods need 1,500.
    assert abs(lower_bound(pods, bins) - 800.0) < 1e-9


def test_kinds_that_most_bins_do_not_admit_are_bounded_by_the_price_of_the_rest() -> None:
    cheap, dear = Bin("cheap", (16, 16), 0.1, 2**30 - 1), Bin("dear", (16, 16), 4.0, 2**60 - 1)
    pods = [Item((1 + n % 3, 2), 8, 8) for n in range(60)]

    assert lower_bound(pods, [cheap, dear]) > 4.0 * 30 * 8 * 2 / 16 - 1


def test_free_bins_lower_the_bound_without_a_division_by_zero() -> None:
    free, sold = Bin("free", (10, 10, 0), 0.0, 0b11), Bin("sold", (10, 10, 10), 1.0, 0b11)

    assert lower_bound([WEB, API], [Bin("free", (10, 10, 10), 0.0, 0b11)]) == 0
    assert lower_bound([WEB, API], [free, sold]) > 6.9


def test_a_resource_without_demand_has_no_price() -> None:
    rich = Bin("rich", (10, 20, 8), 1.0, 1)

    assert resource_prices([Item((1, 2, 0), 10, 10)], [rich])[2] == 0.0


def test_items_that_no_bin_holds_cause_no_error() -> None:
    assert (
        lower_bound([Item((20, 1, 1), 3, 3), Item((30, 1, 1), 3, 3)], [Bin("b", (10, 10, 10), 1.0, 3)]) >= 0
    )


def test_an_item_that_no_bin_holds_adds_nothing_to_the_bound() -> None:
    small = Bin("small", (10, 10, 10), 1.0, 0b01)

    assert lower_bound([Item((20, 1, 1), 3, 3)], [small]) == 0
    assert lower_bound([Item((5, 1, 1), 4, 4), Item((20, 1, 1), 3, 3)], [small]) == 2.0


def test_where_nothing_is_wanted_or_offered_a_commitment_saves_nothing() -> None:
    paid = Bin("paid", (10, 20, 30), 1.0, 0b1, 0, (4,))

    assert commitment_prices([], [paid], {0: (8,)}, [(0, 0)]) == [0.0]
    assert commitment_prices([WEB], [], {0: (8,)}, [(0, 0)]) == [0.0]


def test_a_commitment_saves_as_much_for_many_kinds_as_for_one() -> None:
    """The commitment pays for two of the five nodes."""
    everything = (1 << 50) - 1
    bins = [Bin("sold", (10, 10), 1.0, everything), Bin("paid", (10, 10), 0.0, everything, 0, (4,))]
    one, many = [Item((1, 1), 50, 50)], [Item((1, 1), 1, 1)] * 50

    alike = [commitment_prices(items, bins, {0: (8,)}, [(0, 0)]) for items in (one, many)]

    assert [abs(price - 0.25) < 1e-6 for (price,) in alike] == [True, True]


def test_usable_capacity_is_the_largest_sum_of_requests() -> None:
    pods = [Item((500, 1024), 9, 9), Item((750, 3072), 9, 9)]
    bins = [Bin("small", (1930, 3187), 1.0, 3), Bin("tiny", (300, 500), 0.1, 3)]

    assert [b.capacity for b in usable(pods, bins)] == [(1750, 3072), (0, 0)]


def test_a_charged_amount_is_worth_what_it_saves_and_nothing_where_it_is_not_scarce() -> None:
    """Half of the demand costs 0.5 without the amount, and 0.1 with all of it."""
    plain, paid, ample = ((1.0, 0.0), 1.0), ((0.5, -1.0), 0.1), ((2.0, -0.5), 0.5)

    assert scarcity([plain], 1, 1) == [0.0]
    assert abs(scarcity([plain, paid], 1, 1)[0] - 0.4) < 1e-9
    assert scarcity([plain, ample], 1, 1) == [0.0]


def test_capacity_that_no_item_asks_for_is_not_usable() -> None:
    assert usable([Item((500, 0), 9, 9)], [Bin("b", (1930, 77), 1.0, 1)])[0].capacity == (1500, 0)


def test_usable_capacity_is_the_largest_multiple_if_there_are_too_many_sums() -> None:
    pods = [Item((700,), 9999, 9999), Item((1100,), 9999, 9999)]

    assert usable(pods, [Bin("huge", (10_000_050,), 1.0, 3)])[0].capacity == (10_000_000,)


def test_capacity_is_cut_to_what_the_items_can_fill() -> None:
    pods = [Item((500, 1024, 1), 9, 9), Item((750, 3072, 1), 2, 2)]
    bins = [Bin("wide", (99_000, 8192, 110), 1.0, 3), Bin("huge", (99_000, 99_000, 110), 2.0, 3)]

    assert [b.capacity for b in filled(pods, bins)] == [(6000, 8192, 8), (6000, 15360, 11)]
