"""Adding a function's metrics to an object: nothing lost, nothing duplicated, few writes."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from nodesmith.adapters.s3 import LOOK_AGAIN, METRICS_TRIES, MetricsWriter
from nodesmith.errors import Conflict, Transient
from nodesmith.model.metrics.metrics import SELDOM, SOON, Metrics, labelled
from nodesmith.model.metrics.objects import MetricsObject
from nodesmith.ports import NONE_THERE, Version
from tests.builders import NOW
from tests.fakes.blobs import FakeBlobs

KEY = "clusters/east/metrics/disruption.json"
DECISIONS = "voluntary_disruption_decisions_total"
ELIGIBLE = "voluntary_disruption_eligible_nodes"
EVICTIONS = "pods_eviction_requests_total"
SCHEDULING = "scheduler_scheduling_duration_seconds"
CALLS = "cloudprovider_duration_seconds"
EMPTY = {"decision": "delete", "reason": "empty", "consolidation_type": "empty"}


class Bucket(FakeBlobs):
    """A bucket that counts requests, refuses the first `refuses` writes, and loses the responses of `loses` writes."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = self.loses = self.refuses = 0

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = 2**26) -> Version:
        self.reads += 1
        return super().read(key, known, largest_bytes)

    def replace(self, key: str, data: bytes, known: str) -> str:
        self.writes += 1
        if self.refuses:
            self.refuses -= 1
            raise Conflict(key)
        tag = super().replace(key, data, known)
        if self.loses:
            self.loses -= 1
            raise Transient("the answer was lost")
        return tag

    def content(self) -> MetricsObject:
        return MetricsObject.from_bytes(self.objects[KEY])

    def decisions(self) -> float:
        return self.content().recorded.counters[DECISIONS][labelled(**EMPTY)]


class Process:
    """A warm process of a function, whose runs count and then write."""

    def __init__(self, bucket: Bucket, name: str = "p1", now: datetime = NOW) -> None:
        self.now, self.metrics = now, Metrics()
        self.writer = MetricsWriter(bucket, KEY, self.metrics, lambda: self.now, name)

    def decide(self, times: int = 1) -> Process:
        self.metrics.count(DECISIONS, times, **EMPTY)
        return self

    def see(self, nodes: int) -> Process:
        self.metrics.show(ELIGIBLE, {labelled(reason="empty"): nodes}, self.now)
        return self

    def write(self) -> None:
        self.writer.write()


def test_a_run_without_metrics_makes_no_s3_request() -> None:
    bucket = Bucket()
    process = Process(bucket)
    process.write()
    assert (bucket.reads, bucket.writes) == (0, 0)


def test_a_cold_process_adds_to_the_existing_counts() -> None:
    bucket = Bucket()
    Process(bucket, "p1").decide(3).write()
    Process(bucket, "p2").decide(2).write()
    assert bucket.decisions() == 5


def test_a_warm_process_writes_without_reading_again() -> None:
    bucket = Bucket()
    process = Process(bucket)
    for _ in range(5):
        process.decide().write()
    assert (bucket.reads, bucket.writes, bucket.decisions()) == (1, 5, 5)


def test_two_processes_that_alternate_lose_nothing() -> None:
    bucket = Bucket()
    one, other = Process(bucket, "p1"), Process(bucket, "p2")
    for _ in range(4):
        one.decide().write()
        other.decide(10).write()
    assert bucket.decisions() == 44


def test_a_write_whose_response_was_lost_is_not_repeated() -> None:
    bucket = Bucket()
    process = Process(bucket)
    bucket.loses = 1
    with pytest.raises(Transient):
        process.decide(3).write()
    process.now += SOON
    process.decide().write()
    assert bucket.decisions() == 3
    process.decide().write()
    assert bucket.decisions() == 5


def test_a_failed_write_is_repeated_even_if_others_have_written() -> None:
    bucket = Bucket()
    process, other = Process(bucket), Process(bucket, "p2")
    bucket.down = True
    with pytest.raises(Transient):
        process.decide(3).write()
    bucket.down = False
    other.decide().write()
    process.now += SOON
    process.write()
    assert bucket.decisions() == 4


def test_while_s3_is_unavailable_not_every_run_sends_a_request() -> None:
    bucket = Bucket()
    bucket.down = True
    process = Process(bucket)
    with pytest.raises(Transient):
        process.decide().write()
    asked = bucket.reads
    process.decide().write()
    assert bucket.reads == asked
    bucket.down, process.now = False, process.now + SOON
    process.write()
    assert bucket.decisions() == 2


def test_a_write_that_always_conflicts_is_postponed_to_a_later_run() -> None:
    bucket = Bucket()
    process = Process(bucket)
    bucket.refuses = METRICS_TRIES
    with pytest.raises(Transient, match="other writers won"):
        process.decide().write()
    assert bucket.writes == METRICS_TRIES
    process.now += SOON
    process.write()
    assert bucket.decisions() == 1


def test_metrics_that_are_not_urgent_share_a_write() -> None:
    bucket = Bucket()
    process = Process(bucket)
    for _ in range(60):
        process.metrics.observe(SCHEDULING, 0.2, controller="disruption")
        process.write()
        process.now += timedelta(seconds=1)
    assert bucket.writes == 4
    (histogram,) = bucket.content().recorded.histograms[SCHEDULING].values()
    assert sum(histogram.counts) == 46, "those of the last seconds wait"


def test_an_eviction_is_written_before_the_run_ends() -> None:
    bucket = Bucket()
    for number in range(5):
        process = Process(bucket, f"p{number}")
        for _ in range(2):
            process.metrics.count(EVICTIONS, code="200")
            process.write()
    assert sum(bucket.content().recorded.counters[EVICTIONS].values()) == 10


def test_evictions_that_a_budget_refuses_for_an_hour_are_written_once_a_minute() -> None:
    bucket = Bucket()
    process = Process(bucket)
    for _ in range(3600 // 5):
        process.metrics.count(EVICTIONS, code="429")
        process.write()
        process.now += timedelta(seconds=5)
    assert bucket.writes == 60


def test_metrics_of_an_idle_cluster_are_written_rarely_or_with_urgent_ones() -> None:
    bucket = Bucket()
    process = Process(bucket)
    call = {"controller": "disruption", "method": "List", "provider": "aws"}
    for _ in range(60):
        process.metrics.observe(CALLS, 0.2, **call)
        process.write()
        process.now += timedelta(minutes=1)
    assert bucket.writes == 60 / (SELDOM.total_seconds() / 60)
    process.decide().write()
    (histogram,) = bucket.content().recorded.histograms[CALLS].values()
    assert sum(histogram.counts) == 60


def test_an_unchanged_gauge_is_not_written_again() -> None:
    bucket = Bucket()
    process = Process(bucket)
    for _ in range(30):
        process.see(4).write()
        process.now += timedelta(minutes=1)
    assert bucket.writes == 1
    assert bucket.reads == 30 / (LOOK_AGAIN.total_seconds() / 60)
    process.see(3).write()
    assert bucket.content().recorded.gauges[ELIGIBLE].series == {labelled(reason="empty"): 3}


def test_a_gauge_that_another_process_has_overwritten_is_corrected() -> None:
    bucket = Bucket()
    process, other = Process(bucket), Process(bucket, "p2", NOW + timedelta(seconds=1))
    process.see(4).write()
    other.see(9).write()
    process.now += LOOK_AGAIN
    process.see(4).write()
    assert bucket.content().recorded.gauges[ELIGIBLE].series == {labelled(reason="empty"): 4}


@pytest.mark.parametrize("garbage", [b"", b"{}", b"[1, 2]", b"\x00" * 100])
def test_an_unreadable_object_is_replaced_and_its_counters_restart(garbage: bytes) -> None:
    bucket = Bucket()
    bucket.objects[KEY] = garbage
    Process(bucket).decide(2).write()
    assert bucket.decisions() == 2


def test_the_counters_of_a_deleted_object_restart() -> None:
    bucket = Bucket()
    process = Process(bucket)
    process.decide(7).write()
    del bucket.objects[KEY]
    process.decide().write()
    assert bucket.decisions() == 1


def test_with_too_many_series_only_new_values_are_kept() -> None:
    bucket = Bucket()
    process = Process(bucket)
    by_nodepool = "voluntary_disruption_decisions_by_nodepool_total"
    for number in range(2_000):
        process.metrics.count(by_nodepool, nodepool=f"pool-{number}", **EMPTY)
    process.write()
    process.metrics.count(by_nodepool, nodepool="one-more", **EMPTY)
    process.write()
    assert list(bucket.content().recorded.counters[by_nodepool]) == [labelled(nodepool="one-more", **EMPTY)]


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_counted_once_whatever_fails(seed: int) -> None:
    dice, bucket = random.Random(seed), Bucket()  # noqa: S311
    processes = [Process(bucket, f"p{number}") for number in range(3)]
    counted = 0
    for _ in range(200):
        process = dice.choice(processes)
        bucket.loses, bucket.refuses = dice.random() < 0.2, dice.choice((0, 0, 0, 1, 2, METRICS_TRIES))
        bucket.down = dice.random() < 0.1
        process.now += timedelta(seconds=dice.choice((0, 1, 20)))
        counted += 1
        with suppress(Transient):
            process.decide().write()
    bucket.loses = bucket.refuses = 0
    bucket.down = False
    for process in processes * 2:
        process.now += SELDOM
        process.write()
    assert bucket.decisions() == counted
