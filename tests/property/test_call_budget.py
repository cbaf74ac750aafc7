"""The budget of CreateFleet calls never exceeds EC2's bucket, and clusters share it fairly."""

from __future__ import annotations

import json
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodesmith.model.ec2.launches import CALLS_PER_SECOND, MOST_CALLS, CallBudget
from tests.builders import NOW

EC2_CALLS, EC2_CALLS_PER_SECOND = 50, 5
asks = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.integers(1, 40),
        st.floats(-2, 60, allow_nan=False).map(lambda seconds: timedelta(seconds=seconds)),
    ),
    max_size=60,
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


@given(asks)
def test_a_budget_that_was_written_and_read_grants_the_same(asked: list[tuple[str, int, timedelta]]) -> None:
    budget, now = CallBudget(), NOW
    for cluster, wanted, after in asked:
        now += max(after, timedelta())
        _, budget = budget.take(cluster, wanted, now)
    read = CallBudget.from_item(json.loads(json.dumps(budget.to_item())))
    assert read == budget
    assert read.take("a", 32, now) == budget.take("a", 32, now)


def test_a_single_cluster_gets_the_whole_bucket_every_twelve_seconds() -> None:
    budget = CallBudget()
    for period in range(5):
        calls, budget = budget.take("alone", 32, NOW + timedelta(seconds=12 * period))
        assert calls == MOST_CALLS


def test_the_budget_leaves_a_part_of_ec2s_bucket_and_of_its_refill_to_others() -> None:
    assert MOST_CALLS <= EC2_CALLS - 18
    assert CALLS_PER_SECOND < EC2_CALLS_PER_SECOND
