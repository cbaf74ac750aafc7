"""The metrics that functions record, under Karpenter's names, and their recorder while a function runs."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Literal

BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
    *(120, 150, 300, 450, 600, math.inf),
)
"""Upper bounds, in seconds, of the buckets of most of Karpenter's durations."""
DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, math.inf)
"""Upper bounds of the durations for which Karpenter uses the defaults of the Prometheus client."""
AT_ONCE = timedelta()
SOON = timedelta(seconds=15)
SELDOM = timedelta(minutes=10)
"""For metrics that are also recorded in a cluster without any activity, because each write costs money."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric. `buckets` are the upper bounds of a histogram's buckets.

    `delay` is how long it may wait before it is written, so that consecutive runs share a write. `by_value`
    overrides it for series that have a label with one of these values. A process that is not used again never writes
    what waits, so rare events do not wait.
    """

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = BUCKETS
    delay: timedelta = AT_ONCE
    by_value: Mapping[str, timedelta] = field(default_factory=dict)

    def patience_of(self, values: Iterable[str]) -> timedelta:
        """Return how long a series with these label values may wait before it is written."""
        return min((self.by_value[value] for value in values if value in self.by_value), default=self.delay)


_CALL = ("controller", "method", "provider")
_DECISION = ("consolidation_type", "decision", "reason")

# The forwarder exposes only these to Prometheus, so a metric that is not listed here cannot be recorded.
SERIES: Mapping[str, Series] = {
    "voluntary_disruption_decisions_total": Series(
        "counter", "Disruptions that were started, by decision, reason and consolidation type.", _DECISION
    ),
    "voluntary_disruption_decisions_by_nodepool_total": Series(
        "counter",
        "Disruptions that were started, by NodePool, decision, reason and consolidation type.",
        ("nodepool", *_DECISION),
    ),
    "voluntary_disruption_eligible_nodes": Series(
        "gauge",
        "Nodes that were eligible for disruption at the last check, by reason.",
        ("reason",),
        delay=SOON,
    ),
    "voluntary_disruption_failed_validations_total": Series(
        "counter", "Nodes that were chosen for disruption and failed validation.", ("consolidation_type",)
    ),
    "voluntary_disruption_queue_failures_total": Series(
        "counter", "Replacements of disruptions that could not be launched or never became ready.", _DECISION
    ),
    "voluntary_disruption_consolidation_timeouts_total": Series(
        "counter",
        "Consolidation passes that ended before all candidates were evaluated.",
        ("consolidation_type",),
    ),
    "voluntary_disruption_decision_evaluation_duration_seconds": Series(
        "histogram",
        "Duration of searches for disruptions.",
        ("consolidation_type", "reason"),
        delay=SOON,
    ),
    "scheduler_scheduling_duration_seconds": Series(
        "histogram", "Duration of scheduling decisions, by controller.", ("controller",), delay=SOON
    ),
    "scheduler_unschedulable_pods_count": Series(
        "gauge", "Pods for which no node could be bought.", ("controller",), delay=SOON
    ),
    "scheduler_ignored_pods_count": Series(
        "gauge", "Pending pods that no node can be launched for, whatever the NodePools offer.", delay=SOON
    ),
    "scheduler_pending_pods_by_effective_zone_count": Series(
        "gauge",
        "Pending pods, by the only zone that they can run in: flexible for several zones, none for no zone.",
        ("controller", "zone"),
        delay=SOON,
    ),
    "pods_eviction_requests_total": Series(
        "counter",
        "Eviction requests to the API server, by response code.",
        ("code",),
        by_value={"429": timedelta(minutes=1)},
    ),
    "pods_drained_total": Series(
        "counter", "Pods that were evicted, by the reason for which their node ends.", ("reason",)
    ),
    "nodeclaims_unhealthy_disrupted_total": Series(
        "counter",
        "Nodes that were replaced because a condition was unhealthy for too long, by condition.",
        ("capacity_type", "condition", "image_id", "nodepool"),
    ),
    "nodepools_cost_total": Series(
        "gauge", "Cost of each NodePool's nodes, in USD per hour.", ("nodepool",), delay=SOON
    ),
    "interruption_received_messages_total": Series(
        "counter", "Notices from EC2 and AWS Health about the cluster's instances.", ("message_type",)
    ),
    "interruption_deleted_messages_total": Series(
        "counter", "Notices from EC2 and AWS Health that were handled completely."
    ),
    "interruption_message_queue_duration_seconds": Series(
        "histogram", "Time from the event of a notice until it was read.", delay=SOON
    ),
    "interruption_instance_status_unhealthy_total": Series(
        "counter", "Nodes that end because they failed an EC2 status check, by check.", ("category",)
    ),
    "cloudprovider_instance_launch_failures_total": Series(
        "counter",
        "Offerings that failed in a launch, by EC2's error code.",
        ("capacity_type", "reason", "zone", "zone_id"),
    ),
    "cloudprovider_duration_seconds": Series(
        "histogram",
        "Duration of calls to EC2, by Karpenter's names of controller and method.",
        _CALL,
        DEFAULT_BUCKETS,
        SELDOM,
        {"Create": AT_ONCE, "Delete": AT_ONCE},
    ),
    "cloudprovider_errors_total": Series(
        "counter", "Calls to EC2 that failed, by controller, method and error.", (*_CALL, "error")
    ),
}
"""Name without Karpenter's prefix → metric"""


Labels = tuple[tuple[str, str], ...]


_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def snake_case(word: str) -> str:
    """Write a CamelCase word as in Karpenter's labels: `NetworkingReady` → `networking_ready`."""
    return _WORD.sub("_", word).lower()


def labelled(**values: str) -> Labels:
    """Return labels sorted by name, the form in which they are compared and written."""
    return tuple(sorted(values.items()))


@dataclass(slots=True)
class Histogram:
    """Durations in seconds for one set of labels. `ends` are the upper bounds of the buckets."""

    ends: tuple[float, ...] = BUCKETS
    counts: list[int] = field(default_factory=list)
    total_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * len(self.ends)

    def observe(self, seconds: float, times: int = 1) -> None:
        """Add a duration, `times` times."""
        self.counts[bisect_left(self.ends, seconds)] += times
        self.total_seconds += seconds * times

    def add(self, other: Histogram) -> None:
        """Add the durations of another histogram with the same buckets."""
        self.counts = [mine + others for mine, others in zip(self.counts, other.counts, strict=True)]
        self.total_seconds += other.total_seconds

    def copy(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(self.ends, [*self.counts], self.total_seconds)


@dataclass(frozen=True, slots=True)
class Gauge:
    """All series of one gauge, measured at one moment."""

    at: datetime
    series: Mapping[Labels, float]


@dataclass(slots=True)
class Recorded:
    """Recorded metrics, by name and by labels."""

    counters: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, Histogram]] = field(default_factory=dict)
    gauges: dict[str, Gauge] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the number of series."""
        counters = [len(series) for series in self.counters.values()]
        timed = [len(series) for series in self.histograms.values()]
        return sum(counters) + sum(timed) + sum(len(gauge.series) for gauge in self.gauges.values())

    def add(self, other: Recorded) -> None:
        """Add metrics that were recorded elsewhere. For each gauge, the newer measurement is kept."""
        for name, counts in other.counters.items():
            mine = self.counters.setdefault(name, {})
            for labels, amount in counts.items():
                mine[labels] = mine.get(labels, 0) + amount
        for name, histograms in other.histograms.items():
            by_labels = self.histograms.setdefault(name, {})
            for labels, histogram in histograms.items():
                by_labels.setdefault(labels, Histogram(histogram.ends)).add(histogram)
        for name, gauge in other.gauges.items():
            if name not in self.gauges or self.gauges[name].at <= gauge.at:
                self.gauges[name] = gauge

    def copy(self) -> Recorded:
        """Return an independent copy."""
        copied = Recorded()
        copied.add(self)
        return copied


def _stopped() -> float:
    return 0.0


class Metrics:
    """Records metrics until they are taken to be written. Thread-safe.

    `stopwatch` returns monotonic seconds. Names and labels must be those of `SERIES`.
    """

    def __init__(self, stopwatch: Callable[[], float] = _stopped) -> None:
        self._stopwatch = stopwatch
        self._lock = Lock()
        self._recorded = Recorded()

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Increment a counter."""
        key = _key(name, labels)
        with self._lock:
            counts = self._recorded.counters.setdefault(name, {})
            counts[key] = counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, times: int = 1, /, **labels: str) -> None:
        """Record a duration, `times` times."""
        key = _key(name, labels)
        with self._lock:
            by_labels = self._recorded.histograms.setdefault(name, {})
            by_labels.setdefault(key, Histogram(SERIES[name].buckets)).observe(max(0.0, seconds), times)

    def show(self, name: str, series: Mapping[Labels, float], now: datetime) -> None:
        """Set all series of a gauge."""
        for labels in series:
            _key(name, dict(labels))
        with self._lock:
            self._recorded.gauges[name] = Gauge(now, dict(series))

    @contextmanager
    def timed(self, name: str, times: int = 1, /, **labels: str) -> Iterator[None]:
        """Record how long the block takes, `times` times, even if it raises."""
        began = self._stopwatch()
        try:
            yield
        finally:
            self.observe(name, self._stopwatch() - began, times, **labels)

    @property
    def delay(self) -> timedelta | None:
        """How long the recorded metrics may wait before they are written; None if there are none."""
        with self._lock:
            recorded = self._recorded
            waits = [SERIES[name].delay for name in recorded.gauges]
            keyed = [(name, labels) for name, series in recorded.counters.items() for labels in series]
            keyed += [(name, labels) for name, series in recorded.histograms.items() for labels in series]
        waits += [SERIES[name].patience_of(value for _, value in labels) for name, labels in keyed]
        return min(waits, default=None)

    def take(self) -> Recorded:
        """Return the recorded metrics and start from empty ones."""
        with self._lock:
            recorded, self._recorded = self._recorded, Recorded()
        return recorded


def _key(name: str, labels: Mapping[str, str]) -> Labels:
    """Return labels in their stored form. Raises ValueError for a name or labels that `SERIES` does not list."""
    if name not in SERIES or set(labels) != set(SERIES[name].labels):
        raise ValueError(f"no series {name} with the labels {', '.join(sorted(labels)) or 'none'}")
    return labelled(**labels)
