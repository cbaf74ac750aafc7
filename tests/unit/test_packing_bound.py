"""What the lower bound sees: every resource, every rule that keeps things apart, and bins too small to be of use."""

from __future__ import annotations

from nodesmith.decisions.packing import Bin, Item, lower_bound, resource_prices
from nodesmith.decisions.packing.usablecapacity import filled, usable

WEB, API = Item((1, 2, 1), 40, 40), Item((2, 2, 1), 30, 30)


def test_a_limit_of_pods_per_node_counts_where_it_is_what_runs_out() -> None:
    few = Bin("few", (1000, 1000, 10), 1.0, 0b11)

    assert abs(lower_bound([WEB, API], [few]) - 7.0) < 1e-9


def test_a_resource_that_only_some_need_is_paid_by_these_alone() -> None:
    plain, gpu = Bin("plain", (10, 20, 0), 1.0, 0b11), Bin("gpu", (10, 20, 4), 5.0, 0b11)
    training, web = Item((1, 2, 1), 40, 40), Item((1, 2, 0), 60, 60)

    assert abs(lower_bound([training, web], [plain, gpu]) - 50.0) < 1e-9


def test_things_that_keep_apart_need_a_node_each() -> None:
    apart = [Item((1, 1, 1), 5, 5, (7,), ((7, 1),)), Item((2, 1, 1), 4, 4, (7,), ((7, 1),))]

    assert abs(lower_bound(apart, [Bin("large", (100, 100, 100), 2.0, 0b11)]) - 18.0) < 1e-9


def test_of_those_that_keep_apart_each_takes_its_part_of_a_node() -> None:
    apart = [Item((1, 1, 1), 20, 20, (7,), ((7, 2),)), Item((2, 1, 1), 12, 12, (7,), ((7, 4),))]

    assert abs(lower_bound(apart, [Bin("large", (100, 100, 100), 1.0, 0b11)]) - 13.0) < 1e-9


def test_cpu_of_nodes_too_small_for_any_of_it_is_worth_nothing() -> None:
    nano, real = Bin("nano", (2, 1, 4), 0.01, 0b11), Bin("real", (4, 8, 50), 1.0, 0b11)
    alone = lower_bound([WEB, API], [real])

    assert alone > 20
    assert lower_bound([WEB, API], [nano, real]) == alone


def test_many_kinds_that_only_large_nodes_hold_are_bounded_by_the_price_of_these() -> None:
    small, large = Bin("small", (4, 4), 0.1, 2**60 - 1), Bin("large", (16, 16), 4.0, 2**60 - 1)
    pods = [Item((5 + n % 3, 5 + n // 3), 1, 1) for n in range(60)]

    assert lower_bound(pods, [small, large]) > 0.9 * lower_bound(pods, [large]) > 60


def test_many_kinds_that_most_bins_do_not_admit_are_bounded_by_the_price_of_the_rest() -> None:
    cheap, dear = Bin("cheap", (16, 16), 0.1, 2**30 - 1), Bin("dear", (16, 16), 4.0, 2**60 - 1)
    pods = [Item((1 + n % 3, 2), 8, 8) for n in range(60)]

    assert lower_bound(pods, [cheap, dear]) > 4.0 * 30 * 8 * 2 / 16 - 1


def test_what_is_free_bounds_nothing_and_divides_by_nothing() -> None:
    free, sold = Bin("free", (10, 10, 0), 0.0, 0b11), Bin("sold", (10, 10, 10), 1.0, 0b11)

    assert lower_bound([WEB, API], [Bin("free", (10, 10, 10), 0.0, 0b11)]) == 0
    assert lower_bound([WEB, API], [free, sold]) > 6.9


def test_a_resource_that_is_not_asked_for_has_no_price() -> None:
    rich = Bin("rich", (10, 20, 8), 1.0, 1)

    assert resource_prices([Item((1, 2, 0), 10, 10)], [rich])[2] == 0.0


def test_what_no_bin_holds_bounds_nothing() -> None:
    assert (
        lower_bound([Item((20, 1, 1), 3, 3), Item((30, 1, 1), 3, 3)], [Bin("b", (10, 10, 10), 1.0, 3)]) >= 0
    )


def test_room_counts_as_far_as_sums_of_requests_reach() -> None:
    pods = [Item((500, 1024), 9, 9), Item((750, 3072), 9, 9)]
    bins = [Bin("small", (1930, 3187), 1.0, 3), Bin("tiny", (300, 500), 0.1, 3)]

    assert [b.capacity for b in usable(pods, bins)] == [(1750, 3072), (0, 0)]


def test_room_counts_as_far_as_multiples_reach_where_sums_are_too_many() -> None:
    pods = [Item((700,), 9999, 9999), Item((1100,), 9999, 9999)]

    assert usable(pods, [Bin("huge", (10_000_050,), 1.0, 3)])[0].capacity == (10_000_000,)


def test_room_counts_no_further_than_there_is_something_to_fill_it() -> None:
    pods = [Item((500, 1024, 1), 9, 9), Item((750, 3072, 1), 2, 2)]
    bins = [Bin("wide", (99_000, 8192, 110), 1.0, 3), Bin("huge", (99_000, 99_000, 110), 2.0, 3)]

    assert [b.capacity for b in filled(pods, bins)] == [(6000, 8192, 8), (6000, 15360, 11)]
