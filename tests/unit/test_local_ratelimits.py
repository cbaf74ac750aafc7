"""Token buckets: the burst of EC2's API calls, and the rate at which it refills."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nodesmith_local.aws.ratelimits import TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 8, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_full_bucket_takes_its_burst_and_no_more() -> None:
    bucket = TokenBucket(50, 5, Clock())
    assert [bucket.take() for _ in range(51)] == [True] * 50 + [False]


def test_a_bucket_gains_its_refill_every_second_up_to_its_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(50, 5, clock)
    assert bucket.take(50)
    clock.now += timedelta(seconds=2)
    assert bucket.available() == 10
    clock.now += timedelta(hours=1)
    assert bucket.available() == 50


def test_a_bucket_with_too_few_tokens_gives_none() -> None:
    bucket = TokenBucket(10, 1, Clock())
    assert not bucket.take(11)
    assert bucket.available() == 10


def test_a_fraction_of_a_token_is_kept_for_later() -> None:
    clock = Clock()
    bucket = TokenBucket(1, 0.5, clock)
    assert bucket.take()
    clock.now += timedelta(seconds=1)
    assert not bucket.take()
    clock.now += timedelta(seconds=1)
    assert bucket.take()
