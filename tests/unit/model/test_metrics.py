"""Metrics before they are written: names, labels, buckets, and sums over several processes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.metrics.metrics import (
    AT_ONCE,
    SELDOM,
    SERIES,
    SOON,
    Histogram,
    Metrics,
    Recorded,
    labelled,
)
from tests.builders import NOW

DECISIONS = "voluntary_disruption_decisions_total"
ELIGIBLE = "voluntary_disruption_eligible_nodes"
SCHEDULING = "scheduler_scheduling_duration_seconds"
EMPTY = {"decision": "delete", "reason": "empty", "consolidation_type": "empty"}


class Stopwatch:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_counts_are_taken_once() -> None:
    metrics = Metrics()
    metrics.count(DECISIONS, **EMPTY)
    metrics.count(DECISIONS, 2, **EMPTY)
    assert metrics.take().counters == {DECISIONS: {labelled(**EMPTY): 3}}
    assert metrics.take() == Recorded()


def test_a_block_is_timed_for_each_of_its_parts_even_if_it_fails() -> None:
    stopwatch = Stopwatch()
    metrics = Metrics(stopwatch)

    def fails() -> None:
        with metrics.timed(SCHEDULING, 2, controller="provisioner"):
            stopwatch.seconds += 0.11
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    (histogram,) = metrics.take().histograms[SCHEDULING].values()
    assert (sum(histogram.counts), histogram.total_seconds) == (2, 0.22)
    assert histogram.counts[histogram.ends.index(0.15)] == 2


@pytest.mark.parametrize(
    ("name", "labels"),
    [("decisions_total", EMPTY), (DECISIONS, {"reason": "empty"}), (DECISIONS, {**EMPTY, "nodepool": "web"})],
)
def test_unknown_series_and_labels_are_refused(name: str, labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no series"):
        Metrics().count(name, **labels)


def test_the_shortest_patience_of_the_recorded_metrics_applies() -> None:
    metrics = Metrics()
    assert metrics.delay is None
    metrics.show(ELIGIBLE, {labelled(reason="empty"): 1}, NOW)
    assert metrics.delay == SOON
    metrics.count(DECISIONS, **EMPTY)
    assert metrics.delay == AT_ONCE


def test_a_launch_is_written_immediately_and_a_description_may_wait() -> None:
    metrics = Metrics()
    for method, patience in (("List", SELDOM), ("Create", AT_ONCE)):
        about = {"controller": "disruption", "provider": "aws"}
        metrics.observe("cloudprovider_duration_seconds", 1.0, **about, method=method)
        assert metrics.delay == patience


def test_adding_processes_keeps_all_counts_and_the_newest_gauges() -> None:
    older, newer = Metrics(), Metrics()
    for metrics, at, nodes in ((older, NOW, 5), (newer, NOW + timedelta(seconds=1), 3)):
        metrics.count(DECISIONS, **EMPTY)
        metrics.observe(SCHEDULING, 0.2, controller="disruption")
        metrics.show(ELIGIBLE, {labelled(reason="empty"): nodes}, at)
    sum_ = newer.take()
    sum_.add(older.take())
    assert sum_.counters[DECISIONS] == {labelled(**EMPTY): 2}
    assert sum(sum_.histograms[SCHEDULING][labelled(controller="disruption")].counts) == 2
    assert sum_.gauges[ELIGIBLE].series == {labelled(reason="empty"): 3}
    assert sum_.size == 3


def test_a_copy_does_not_change_with_its_original() -> None:
    metrics = Metrics()
    metrics.observe(SCHEDULING, 0.2, controller="disruption")
    recorded = metrics.take()
    copied = recorded.copy()
    recorded.add(copied)
    (histogram,) = copied.histograms[SCHEDULING].values()
    assert sum(histogram.counts) == 1


@pytest.mark.parametrize("name", [name for name, series in SERIES.items() if series.kind == "histogram"])
def test_the_last_bucket_of_a_histogram_has_no_end(name: str) -> None:
    histogram = Histogram(SERIES[name].buckets)
    histogram.observe(1e9)
    assert histogram.counts[-1] == 1
    assert list(histogram.ends) == sorted(histogram.ends)


def test_names_of_series_follow_the_conventions_of_prometheus() -> None:
    for name, series in SERIES.items():
        assert name.endswith("_total") or series.kind != "counter", name
        assert name.endswith("_seconds") or series.kind != "histogram", name
        assert series.labels == tuple(series.labels)
        assert series.help.endswith("."), name
