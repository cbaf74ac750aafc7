"""The text that Prometheus reads (exposition format 0.0.4): counters, gauges, histograms and summaries."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "karpenter_"
_UNPREFIXED = "operator_"
BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
    *(120, 150, 300, 450, 600, math.inf),
)
"""Upper ends, in seconds: Karpenter's"""
QUANTILES = (0, 0.5, 0.9, 0.99, 1)
RECENT = timedelta(minutes=10)
MOST_RECENT = 2000
"""Durations that quantiles are taken from: the newest of many."""
Labels = tuple[tuple[str, str], ...]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(slots=True)
class Histogram:
    """Durations in seconds, of one set of labels. `ends` are the upper ends of the buckets that they are counted in."""

    ends: tuple[float, ...] = BUCKETS
    counts: list[int] = field(default_factory=list)
    total_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * len(self.ends)

    def observe(self, seconds: float) -> None:
        """Add one."""
        self.counts[bisect_left(self.ends, seconds)] += 1
        self.total_seconds += seconds

    def copy(self) -> Histogram:
        """Give one that does not grow with this."""
        return Histogram(self.ends, [*self.counts], self.total_seconds)


@dataclass(slots=True)
class Summary:
    """Durations in seconds, of one set of labels, with quantiles of those of the last ten minutes."""

    recent: deque[tuple[datetime, float]] = field(default_factory=lambda: deque(maxlen=MOST_RECENT))
    count: int = 0
    total_seconds: float = 0.0

    def observe(self, seconds: float, now: datetime) -> None:
        """Add one."""
        self.recent.append((now, seconds))
        self.count += 1
        self.total_seconds += seconds

    def copy(self, now: datetime) -> Summary:
        """Return one that does not grow with this, of what is recent now."""
        while self.recent and now - self.recent[0][0] > RECENT:
            self.recent.popleft()
        return Summary(self.recent.copy(), self.count, self.total_seconds)

    def quantiles(self) -> Iterator[tuple[float, float]]:
        """Yield the quantiles that Karpenter's summaries have, with their seconds; NaN where nothing is recent."""
        values = sorted(seconds for _, seconds in self.recent)
        for quantile in QUANTILES:
            rank = max(0, math.ceil(quantile * len(values)) - 1)
            yield quantile, values[rank] if values else math.nan


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and all its series, by labels. `name` is without Karpenter's prefix, which `operator_` ones lack."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "summary"]
    help: str
    series: Mapping[Labels, float | Histogram | Summary]


def labelled(**values: str) -> Labels:
    """Give labels in the order of their names, as they are compared and written."""
    return tuple(sorted(values.items()))


def written(families: Iterable[Family]) -> str:
    """Write families in order, and their series by their labels."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    name = family.name if family.name.startswith(_UNPREFIXED) else PREFIX + family.name
    yield f"# HELP {name} {family.help}"
    yield f"# TYPE {name} {family.kind}"
    for labels, value in sorted(family.series.items(), key=lambda item: item[0]):
        if isinstance(value, Histogram):
            yield from _buckets(name, labels, value)
        elif isinstance(value, Summary):
            yield from _quantiles(name, labels, value)
        else:
            yield f"{name}{_braced(labels)} {value:.15g}"


def _buckets(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    below = 0
    for end, count in zip(histogram.ends, histogram.counts, strict=True):
        below += count
        yield f"{name}_bucket{_braced((*labels, ('le', '+Inf' if math.isinf(end) else f'{end:g}')))} {below}"
    yield f"{name}_sum{_braced(labels)} {histogram.total_seconds:.15g}"
    yield f"{name}_count{_braced(labels)} {below}"


def _quantiles(name: str, labels: Labels, summary: Summary) -> Iterator[str]:
    for quantile, seconds in summary.quantiles():
        yield f"{name}{_braced((*labels, ('quantile', f'{quantile:g}')))} {_number(seconds)}"
    yield f"{name}_sum{_braced(labels)} {_number(summary.total_seconds)}"
    yield f"{name}_count{_braced(labels)} {summary.count}"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.15g}"


def _braced(labels: Labels) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""
