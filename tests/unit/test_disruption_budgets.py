"""How many of a NodePool's nodes may go now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodesmith.decisions.disruption.budgets import allowed, is_active
from nodesmith.model.budgets import Budget
from nodesmith.model.cron import last_hit, parse_cron

MONDAY = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
HOUR = 3600


@pytest.mark.parametrize(
    ("nodes", "of", "expected"),
    [
        ("10%", 10, 1),
        ("10%", 11, 2),
        ("10%", 1, 1),
        ("10%", 0, 0),
        ("100%", 7, 7),
        ("0", 9, 0),
        ("3", 2, 3),
        ("0%", 9, 0),
    ],
)
def test_a_percentage_is_rounded_up_and_a_count_is_a_count(nodes: str, of: int, expected: int) -> None:
    assert allowed([Budget(nodes)], "Expired", of, 0, MONDAY) == expected


def test_the_least_of_the_budgets_that_name_the_reason_counts() -> None:
    budgets = [
        Budget("5"),
        Budget("1", reasons=("Drifted",)),
        Budget("0", reasons=("Empty",)),
        Budget("0", reasons=()),
    ]
    assert allowed(budgets, "Drifted", 100, 0, MONDAY) == 1
    assert allowed(budgets, "Expired", 100, 0, MONDAY) == 5


def test_nodes_that_are_disrupted_already_are_taken_off_and_never_below_nothing() -> None:
    assert allowed([Budget("2")], "Expired", 100, 1, MONDAY) == 1
    assert allowed([Budget("2")], "Expired", 100, 5, MONDAY) == 0


def test_where_no_budget_speaks_all_may_go() -> None:
    assert allowed([], "Expired", 100, 50, MONDAY) is None
    sleeping = Budget("0", schedule="0 0 1 1 *", duration_seconds=HOUR)
    assert allowed([sleeping], "Expired", 100, 0, MONDAY) is None


@pytest.mark.parametrize(
    ("schedule", "hours", "active"),
    [
        ("0 9 * * mon-fri", 8, True),
        ("0 9 * * mon-fri", 0.5, False),
        ("30 9 * * *", 1, True),
        ("31 9 * * *", 24, True),
        ("31 9 * * *", 23, False),
        ("0 22 * * *", 12, True),
        ("@weekly", 34, True),
        ("@weekly", 33, False),
        ("0 0 1 * 1", 10, True),
        ("0 0 1 * 2", 10, False),
        ("0 0 29 2 *", 24 * 365 * 3, True),
        ("0 0 29 2 *", 24 * 365, False),
    ],
)
def test_a_budget_holds_for_its_duration_from_each_moment_of_its_schedule_on(
    schedule: str, hours: float, active: bool
) -> None:
    assert is_active(Budget("0", schedule=schedule, duration_seconds=int(hours * HOUR)), MONDAY) is active


def test_a_schedule_that_cannot_be_read_holds_always() -> None:
    assert is_active(Budget("0", schedule="at noon", duration_seconds=60), MONDAY)


@given(
    st.sampled_from(
        ["*/7 * * * *", "15 3 * * *", "0 12 1,15 * *", "5 4 * * sun", "0 0 13 * 5", "59 23 31 12 ?"]
    ),
    st.integers(0, 3 * 365 * 24 * 60),
    st.integers(1, 3 * 24 * 60),
)
def test_the_last_moment_is_the_one_that_trying_every_minute_finds(
    schedule: str, before: int, minutes: int
) -> None:
    until, cron = MONDAY - timedelta(minutes=before, seconds=30), parse_cron(schedule)
    after = until - timedelta(minutes=minutes)
    moment = until.replace(second=0, microsecond=0)
    tried = None
    while moment > after and tried is None:
        day = moment.day in cron.days, moment.isoweekday() % 7 in cron.weekdays
        on = all(day) if cron.any_day or cron.any_weekday else any(day)
        if moment.month in cron.months and on and moment.hour in cron.hours and moment.minute in cron.minutes:
            tried = moment
        moment -= timedelta(minutes=1)
    assert last_hit(cron, after, until) == tried
