"""Counters, gauges and histograms as in Prometheus, and their recorder while a function runs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock

from nodesmith.model.metrics.series import BUCKETS, SERIES

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
        counted = [len(series) for series in self.counters.values()]
        timed = [len(series) for series in self.histograms.values()]
        return sum(counted) + sum(timed) + sum(len(gauge.series) for gauge in self.gauges.values())

    def add(self, other: Recorded) -> None:
        """Add metrics that were recorded elsewhere. For each gauge, the newer measurement is kept."""
        for name, counts in other.counters.items():
            mine = self.counters.setdefault(name, {})
            for labels, amount in counts.items():
                mine[labels] = mine.get(labels, 0) + amount
        for name, histograms in other.histograms.items():
            known = self.histograms.setdefault(name, {})
            for labels, histogram in histograms.items():
                known.setdefault(labels, Histogram(histogram.ends)).add(histogram)
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
            known = self._recorded.histograms.setdefault(name, {})
            known.setdefault(key, Histogram(SERIES[name].buckets)).observe(max(0.0, seconds), times)

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
    def patience(self) -> timedelta | None:
        """How long the recorded metrics may wait before they are written; None if there are none."""
        with self._lock:
            recorded = self._recorded
            waits = [SERIES[name].patience for name in recorded.gauges]
            keyed = [(name, labels) for name, series in recorded.counters.items() for labels in series]
            keyed += [(name, labels) for name, series in recorded.histograms.items() for labels in series]
        waits += [SERIES[name].patience_of(value for _, value in labels) for name, labels in keyed]
        return min(waits, default=None)

    def take(self) -> Recorded:
        """Return the recorded metrics and start from empty ones."""
        with self._lock:
            taken, self._recorded = self._recorded, Recorded()
        return taken


def _key(name: str, labels: Mapping[str, str]) -> Labels:
    """Return labels in their stored form. Raises ValueError for a name or labels that `SERIES` does not list."""
    if name not in SERIES or set(labels) != set(SERIES[name].labels):
        raise ValueError(f"no series {name} with the labels {', '.join(sorted(labels)) or 'none'}")
    return labelled(**labels)
