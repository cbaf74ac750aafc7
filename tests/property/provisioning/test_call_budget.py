"""The budget of CreateFleet calls never exceeds EC2's bucket, and clusters share it fairly."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodesmith.model.ledger.region import (
    ACTIVE_FOR,
    CALLS_PER_SECOND,
    MOST_CALLS,
    SHORT_CALLS_PER_SECOND,
    CallBudget,
    Scarcity,
)
from tests.builders import NOW

EC2_CALLS, EC2_CALLS_PER_SECOND = 50, 5
EC2_INSTANCES, EC2_INSTANCES_PER_SECOND = 1000, 2
asks = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.integers(1, 40),
        st.floats(-2, 60, allow_nan=False).map(lambda seconds: timedelta(seconds=seconds)),
    ),
    max_size=60,
)

times = st.datetimes(timezones=st.just(UTC))
documents = (
    st.none()
    | st.booleans()
    | st.just("0001-01-01T00:00:00+05:00")
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
)


@given(asks)
def test_no_window_holds_more_calls_than_the_bucket_and_its_refill(
    asked: list[tuple[str, int, timedelta]],
) -> None:
    budget, now, granted = CallBudget(), NOW, []
    for cluster, wanted, after in asked:
        now += max(after, timedelta())
        calls, budget = budget.take(cluster, wanted, now + min(after, timedelta()))  # a clock may be behind
        assert 0 <= calls <= wanted
        granted.append((now, calls))
    for first, (began, _) in enumerate(granted):
        made = 0
        for at, calls in granted[first:]:
            made += calls
            assert made <= MOST_CALLS + CALLS_PER_SECOND * (at - began + timedelta(seconds=2)).total_seconds()


@given(st.integers(2, 8), st.integers(0, 11))
def test_clusters_that_always_need_calls_get_equal_shares_whoever_asks_first(
    clusters: int, apart: int
) -> None:
    budget, made = CallBudget(), [0] * clusters
    for period in range(40):
        for number in range(clusters):
            now = NOW + timedelta(seconds=12 * period + (number * apart) % 12)
            calls, budget = budget.take(str(number), 32, now)
            made[number] += calls * (period >= 10)
    assert max(made) - min(made) <= 0.35 * max(made)
    assert sum(made) >= 30 * clusters * (MOST_CALLS // clusters)


@pytest.mark.parametrize("within_seconds", [0, 5, 12])
@pytest.mark.parametrize(("clusters", "minutes"), [(17, 1), (40, 1), (100, 2), (200, 3)])
def test_each_of_many_clusters_gets_calls_although_its_share_of_a_period_is_less_than_one(
    clusters: int, minutes: int, within_seconds: int
) -> None:
    budget, made = CallBudget(), [0] * clusters
    for period in range(5 * minutes + 10):
        for number in range(clusters):
            now = NOW + timedelta(seconds=12 * period + within_seconds * number / clusters)
            calls, budget = budget.take(str(number), 2, now)
            made[number] += calls * (period >= 10)
    assert min(made) >= max(1, 0.4 * max(made))
    assert sum(made) >= 0.6 * CALLS_PER_SECOND * 60 * minutes


@pytest.mark.parametrize("clusters", [10, 40, 100])
def test_each_cluster_that_comes_at_its_turn_gets_a_call_in_each_round(clusters: int) -> None:
    budget = CallBudget(calls=0, at=NOW).with_scarcity(Scarcity(is_throttled=True), NOW)
    asks = [(NOW + timedelta(milliseconds=number), str(number)) for number in range(clusters)]
    heapify(asks)
    got: dict[str, list[datetime]] = {name: [] for _, name in asks}
    while asks[0][0] < NOW + timedelta(minutes=3):
        now, name = heappop(asks)
        calls, budget = budget.take(name, 1, now)
        got[name] += [now] * calls
        again = timedelta(seconds=1 if calls else 0.2)  # later than its turn, as a run that is woken
        heappush(asks, (budget.turn(name, now) + again, name))
    gaps = [(b - a).total_seconds() for times in got.values() for a, b in pairwise(times)]
    assert max(gaps) <= 1.3 * clusters / SHORT_CALLS_PER_SECOND + 3
    assert sum(map(len, got.values())) >= 0.85 * SHORT_CALLS_PER_SECOND * 180


@pytest.mark.parametrize("clusters", [1, 10, 40, 100, 200])
def test_if_clusters_buy_once_a_round_ec2s_instances_last_for_five_minutes(clusters: int) -> None:
    budget, end, made = CallBudget(calls=0, at=NOW), NOW + timedelta(minutes=5), 0
    asks = [(NOW + timedelta(milliseconds=number), str(number)) for number in range(clusters)]
    heapify(asks)
    while asks[0][0] < end:
        now, name = heappop(asks)
        calls, budget = budget.with_scarcity(Scarcity(is_throttled=True), now).take(name, 1, now)
        made += calls
        again = budget.next_round(calls, now) if calls else budget.turn(name, now)
        heappush(asks, (again + timedelta(seconds=0.2), name))
    assert 0.5 * SHORT_CALLS_PER_SECOND * 300 <= made <= EC2_INSTANCES + EC2_INSTANCES_PER_SECOND * 300


def test_a_round_lasts_no_longer_than_a_cluster_counts_as_one_that_shares_the_budget() -> None:
    budget = CallBudget().with_scarcity(Scarcity(is_throttled=True), NOW)
    for number in range(500):
        _, budget = budget.take(str(number), 1, NOW)
    assert timedelta(seconds=20) < budget.next_round(5, NOW) - NOW < ACTIVE_FOR


def test_clusters_that_do_not_come_for_their_calls_stop_others_for_no_longer_than_half_a_minute() -> None:
    budget = CallBudget(calls=0, at=NOW)
    for number in range(100):
        _, budget = budget.take(str(number), 1, NOW)

    granted, _ = budget.take("new", 1, NOW + ACTIVE_FOR)

    assert granted == 1


@given(asks)
def test_a_budget_that_was_written_and_read_grants_the_same(asked: list[tuple[str, int, timedelta]]) -> None:
    budget, now = CallBudget(), NOW
    for cluster, wanted, after in asked:
        now += max(after, timedelta())
        _, budget = budget.take(cluster, wanted, now)
    read = CallBudget.from_item(json.loads(json.dumps(budget.to_item())))
    assert read == budget
    assert read.take("a", 32, now) == budget.take("a", 32, now)


@given(times, times, st.floats())
def test_whatever_the_shared_item_says_the_budget_is_full_after_two_periods(
    at: datetime, asked_at: datetime, calls: float
) -> None:
    budget = CallBudget(calls, at, {"other": asked_at, "own": asked_at})
    for period in range(4):
        _, budget = budget.take("own", 0, NOW + timedelta(seconds=12 * period))
    granted, _ = budget.take("own", MOST_CALLS, NOW + timedelta(seconds=90))
    assert granted == MOST_CALLS


@given(st.dictionaries(st.sampled_from(["calls", "at", "askedAt"]), documents, min_size=1))
def test_an_item_that_no_function_has_written_is_read_as_a_full_budget(item: dict[str, Any]) -> None:
    assert CallBudget.from_item(item) == CallBudget()


def test_a_single_cluster_gets_the_whole_bucket_every_twelve_seconds() -> None:
    budget = CallBudget()
    for period in range(5):
        calls, budget = budget.take("alone", 32, NOW + timedelta(seconds=12 * period))
        assert calls == MOST_CALLS


def test_the_budget_leaves_a_part_of_ec2s_bucket_and_of_its_refill_to_others() -> None:
    assert MOST_CALLS <= EC2_CALLS - 18
    assert CALLS_PER_SECOND < EC2_CALLS_PER_SECOND
