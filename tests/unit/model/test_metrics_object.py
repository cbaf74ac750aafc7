"""The object with a function's metrics: it is read as it was written, and all of its content is validated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodesmith.errors import Rejected
from nodesmith.model.metrics.metrics import Histogram, Metrics, labelled
from nodesmith.model.metrics.objects import MOST_WRITERS, MetricsObject
from tests.builders import NOW

DECISIONS = "voluntary_disruption_decisions_total"
ELIGIBLE = "voluntary_disruption_eligible_nodes"
SCHEDULING = "scheduler_scheduling_duration_seconds"
EMPTY = {"decision": "delete", "reason": "empty", "consolidation_type": "empty"}
NOTHING: dict[str, Any] = {"format": 1, "writers": [], "counters": {}, "histograms": {}, "gauges": {}}


def full() -> MetricsObject:
    metrics = Metrics()
    metrics.count(DECISIONS, 3, **EMPTY)
    metrics.observe(SCHEDULING, 0.2, controller="disruption")
    metrics.show(ELIGIBLE, {labelled(reason="empty"): 2.0}, NOW)
    return MetricsObject(metrics.take(), {"a": 4, "b": 1})


def read(**content: Any) -> MetricsObject:
    return MetricsObject.from_bytes(json.dumps({**NOTHING, **content}).encode())


def test_written_data_is_read_back_unchanged() -> None:
    assert MetricsObject.from_bytes(full().to_bytes()) == full()


def test_metrics_and_labels_of_another_version_are_left_out() -> None:
    counters = {
        "of_tomorrow_total": [[{"by": "x"}, 1]],
        SCHEDULING: [[{"controller": "x"}, 1]],
        DECISIONS: [[{**EMPTY, "policy": "x"}, 1], [EMPTY, 2]],
    }
    found = read(counters=counters).recorded
    assert found.counters == {DECISIONS: {labelled(**EMPTY): 2}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({**NOTHING, "format": 2}).encode(),
        json.dumps({k: v for k, v in NOTHING.items() if k != "gauges"}).encode(),
        json.dumps({**NOTHING, "counters": [1]}).encode(),
        json.dumps({**NOTHING, "writers": {"a": 1}}).encode(),
        json.dumps({**NOTHING, "counters": {DECISIONS: [[EMPTY, -1]]}}).encode(),
        json.dumps({**NOTHING, "counters": {DECISIONS: [[EMPTY, "1"]]}}).encode(),
        json.dumps({**NOTHING, "counters": {DECISIONS: [[EMPTY, True]]}}).encode(),
        json.dumps({**NOTHING, "counters": {DECISIONS: [[EMPTY, None]]}}).encode(),
        json.dumps({**NOTHING, "counters": {DECISIONS: [[EMPTY, 1e300]]}}).encode(),
        json.dumps({**NOTHING, "counters": {DECISIONS: [[{**EMPTY, "reason": 7}, 1]]}}).encode(),
        json.dumps({**NOTHING, "counters": {DECISIONS: [[{**EMPTY, "reason": "x" * 301}, 1]]}}).encode(),
        json.dumps({**NOTHING, "histograms": {SCHEDULING: [[{"controller": "x"}, [[1, 2], 3]]]}}).encode(),
        json.dumps({**NOTHING, "gauges": {ELIGIBLE: {"at": "now", "series": []}}}).encode(),
        json.dumps({**NOTHING, "gauges": {ELIGIBLE: [[{"reason": "x"}, 1]]}}).encode(),
        (json.dumps({**NOTHING, "gauges": {ELIGIBLE: {"at": NOW.isoformat(), "series": []}}})[:-4]).encode(),
        json.dumps(NOTHING).replace("{}", "NaN").encode(),
    ],
)
def test_invalid_data_is_refused(data: bytes) -> None:
    with pytest.raises(Rejected, match="metrics:"):
        MetricsObject.from_bytes(data)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(Rejected):
        MetricsObject.from_bytes(data)


def test_too_many_series_are_refused() -> None:
    series = [[{**EMPTY, "reason": f"r{n}"}, 1] for n in range(2_001)]
    with pytest.raises(Rejected, match="2001 series"):
        read(counters={DECISIONS: series})


def test_the_most_recent_writers_are_kept() -> None:
    written = MetricsObject()
    for number in range(MOST_WRITERS + 5):
        written.writers = written.noted(f"w{number}", 1)
    written.writers = written.noted("w10", 2)
    assert len(written.writers) == MOST_WRITERS
    assert list(written.writers)[-1] == "w10"
    assert "w4" not in written.writers


def test_a_histogram_of_the_right_length_is_read_with_its_buckets() -> None:
    length = len(Histogram().ends)
    found = read(histograms={SCHEDULING: [[{"controller": "x"}, [[1] * length, 4.5]]]}).recorded
    assert found.histograms[SCHEDULING][labelled(controller="x")] == Histogram(
        counts=[1] * length, total_seconds=4.5
    )
