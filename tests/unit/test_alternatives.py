"""Lots, and the alternatives that a decision tries: what is equal may be taken otherwise, the best plan is kept."""

from __future__ import annotations

from nodesmith.decisions.scheduling.lots import Lots

NAMES = [f"thing-{n}" for n in range(8)]


def test_the_first_lots_leave_the_usual_order_and_pass_nothing_over() -> None:
    lots = Lots()

    assert lots.order(NAMES, str) == NAMES
    assert not any(lots.passes_over(name) for name in NAMES * 10)


def test_other_lots_give_other_orders_of_the_same_things() -> None:
    orders = {tuple(Lots(number).order(NAMES, str)) for number in range(1, 30)}

    assert len(orders) == 29
    assert all(sorted(order) == NAMES for order in orders)


def test_a_number_draws_the_same_whatever_was_drawn_before() -> None:
    busy = Lots(3)
    busy.order(reversed(NAMES), str)

    assert busy.order(NAMES, str) == Lots(3).order(NAMES[::-1], str)


def test_lots_know_whether_there_was_anything_to_choose() -> None:
    lots = Lots()

    lots.order(NAMES[:1], str)
    assert not lots.asked
    lots.order(NAMES[:2], str)
    assert lots.asked


def test_some_lots_pass_a_quarter_over() -> None:
    passed = [Lots(1).passes_over(n) for n in range(4_000)]

    assert 0.2 < sum(passed) / len(passed) < 0.3
    assert not any(Lots(2).passes_over(n) for n in range(4_000))
