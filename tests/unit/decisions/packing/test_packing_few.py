"""Few kinds of items: which plans are compared, and how much work that may take."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nodesmith.decisions.packing import Bin, Item, pack
from nodesmith.decisions.packing.exact import Cheapest, repack
from nodesmith.decisions.packing.problem import PartialPlan

SMALL, LARGE = Bin("small", (4, 16, 30), 1.0, 0b11), Bin("large", (16, 64, 110), 3.5, 0b11)


def test_several_small_bins_compete_with_a_large_one() -> None:
    ten = pack([Item((4, 4, 1), 4, 4)], [SMALL, LARGE])
    dear = pack([Item((4, 4, 1), 4, 4)], [SMALL, Bin("large", (16, 64, 110), 4.5, 1)])

    assert (ten.price, dear.price) == (3.5, 4.0)
    assert (ten.bound, dear.bound) == (3.5, 4.0)


def test_families_are_combined_if_each_is_cheaper_for_one_kind() -> None:
    lean, rich = Bin("lean", (16, 32, 110), 2.0, 0b11), Bin("rich", (16, 128, 110), 3.0, 0b11)
    packing = pack([Item((4, 8, 1), 40, 40), Item((4, 32, 1), 40, 40)], [lean, rich])

    assert packing.price == 10 * 2.0 + 10 * 3.0


def test_a_limit_on_cheap_bins_is_never_exceeded() -> None:
    cheap = Bin("cheap", (4, 16, 30), 1.0, 0b1, 0, (4,))
    dear = Bin("dear", (4, 16, 30), 2.0, 0b1)
    packing = pack([Item((4, 4, 1), 10, 10)], [cheap, dear], {0: (12,)})

    assert packing.price == 3 * 1.0 + 7 * 2.0
    assert packing.limits == {0: (0,)}


def test_equal_items_with_separate_limits_per_node_may_share_a_node() -> None:
    packing = pack([Item((1, 1, 1), 3, 1), Item((1, 1, 1), 3, 1)], [SMALL])

    assert packing.price == 3.0


def test_small_problems_load_neither_numpy_nor_a_solver() -> None:
    code = (
        "import sys; from nodesmith.decisions.packing import Bin, Item, pack;"
        "bins = [Bin(str(n), (4 * n, 16 * n, 30 * n), 0.9 * n + 0.1, 1) for n in range(1, 20)];"
        "assert not any(pack([Item((3, 5, 1), 20, 20)], bins).left);"
        "print('numpy' in sys.modules, 'highspy' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert found.stdout.split() == ["False", "False"]


def test_ten_times_as_many_bins_take_less_than_twice_the_work() -> None:
    items = [Item((100 + 370 * n % 3900, 128 + 613 * n % 8000, 1), 60, 60) for n in range(12)]
    few, many = (
        pack(
            items,
            [
                Bin(f"{n:04d}", (64_000 * n // end, 131_072 * n // end, 640), 19.2 * n / end, -1)
                for n in range(1, end + 1)
            ],
        )
        for end in (100, 1000)
    )

    assert many.steps < 2 * few.steps
    assert many.price <= few.price


def test_a_good_enough_plan_is_not_improved_further() -> None:
    """The quick plan is 2.7 % above its bound: it is returned for 5 %; a smaller ratio takes more steps."""
    sizes = [Bin("b8", (8, 16), 7.12, 15), Bin("b12", (12, 24), 10.49, 15), Bin("b16", (16, 32), 13.64, 15)]
    things = [Item((6, 12), 9, 9), Item((3, 6), 5, 5), Item((2, 8), 7, 7), Item((5, 12), 3, 3)]
    quick, thorough = pack(things, sizes, good_enough=1.05), pack(things, sizes)

    assert thorough.price < quick.price <= 1.05 * quick.bound
    assert quick.steps * 100 < thorough.steps


@pytest.mark.parametrize(("left", "expected"), [(1, ["wide"]), (0, ["small", "small"])])
def test_nodes_are_packed_again_only_as_far_as_the_limit_pays_for_that(
    left: int, expected: list[str]
) -> None:
    small, wide = Bin("small", (4, 4), 1.0, 0b1), Bin("wide", (8, 8), 1.5, 0b1, 0, (1,))
    plan = PartialPlan([Item((4, 4), 2, 2)], {0: (left,)})
    plan.buy(small, (1,), 2)

    repack(plan, Cheapest(plan.items, [small, wide]), 1000, 1000)

    assert [bin_.key for bin_, _, repeats in plan.bought for _ in range(repeats)] == expected
    assert plan.remaining.limits == {0: (0,)}
