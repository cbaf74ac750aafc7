"""The text that Prometheus reads (exposition format 0.0.4): counters, gauges, histograms and summaries."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from nodesmith.model.metrics import Histogram, Labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "karpenter_"
_UNPREFIXED = "operator_"
QUANTILES = (0, 0.5, 0.9, 0.99, 1)
RECENT = timedelta(minutes=10)
MOST_RECENT = 2000
"""The maximum number of durations for quantiles; the newest are kept."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(slots=True)
class Summary:
    """Durations in seconds of one set of labels, with quantiles over the last ten minutes."""

    recent: deque[tuple[datetime, float]] = field(default_factory=lambda: deque(maxlen=MOST_RECENT))
    count: int = 0
    total_seconds: float = 0.0

    def observe(self, seconds: float, now: datetime) -> None:
        """Add one duration."""
        self.recent.append((now, seconds))
        self.count += 1
        self.total_seconds += seconds

    def copy(self, now: datetime) -> Summary:
        """Drop durations that are no longer recent, and return an independent copy of the rest."""
        while self.recent and now - self.recent[0][0] > RECENT:
            self.recent.popleft()
        return Summary(self.recent.copy(), self.count, self.total_seconds)

    def quantiles(self) -> Iterator[tuple[float, float]]:
        """Yield the quantiles that Karpenter's summaries have, with their seconds; NaN if no duration is recent."""
        values = sorted(seconds for _, seconds in self.recent)
        for quantile in QUANTILES:
            rank = max(0, math.ceil(quantile * len(values)) - 1)
            yield quantile, values[rank] if values else math.nan


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and all its series by labels. `name` omits Karpenter's prefix, which names with `operator_` lack."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "summary"]
    help: str
    series: Mapping[Labels, float | Histogram | Summary]


def written(families: Iterable[Family]) -> str:
    """Return the text of the families in order, with their series sorted by labels."""
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
