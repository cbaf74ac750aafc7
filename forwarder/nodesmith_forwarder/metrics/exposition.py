"""The text that Prometheus reads (exposition format 0.0.4), as Prometheus' client library writes it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric, Sample

from nodesmith.model.metrics.metrics import Histogram, Labels

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Karpenter's format. In OpenMetrics, `le="5"` would be `le="5.0"`, another series to Prometheus 2."""
PREFIX = "karpenter_"
_UNPREFIXED = "operator_"
QUANTILES = (0, 0.5, 0.9, 0.99, 1)
RECENT = timedelta(minutes=10)
MOST_RECENT = 2000
"""The maximum number of durations for quantiles; the newest are kept."""


@dataclass(slots=True)
class Summary:
    """Durations in seconds of one set of labels, with quantiles over the last ten minutes.

    The library's own summaries have no quantiles.
    """

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


@dataclass(frozen=True, slots=True)
class _Families:
    """A collector of the library. It holds one converted family at a time, because some have thousands of series."""

    families: Iterable[Family]

    def collect(self) -> Iterator[Metric]:
        return map(_converted, self.families)


def exposition_text(families: Iterable[Family]) -> bytes:
    """Return the text of the families in order, with their series sorted by labels."""
    return generate_latest(_Families(families))


def _converted(family: Family) -> Metric:
    name = family.name if family.name.startswith(_UNPREFIXED) else PREFIX + family.name
    bare = name.removesuffix("_total") if family.kind == "counter" else name  # the library adds it again
    metric = Metric(bare, family.help, family.kind)
    for labels, value in sorted(family.series.items(), key=lambda item: item[0]):
        metric.samples += _samples(name, dict(labels), value)
    return metric


def _samples(name: str, labels: dict[str, str], value: float | Histogram | Summary) -> Iterator[Sample]:
    if isinstance(value, Histogram):
        cumulative = 0
        for end, count in zip(value.ends, value.counts, strict=True):
            cumulative += count
            yield Sample(
                f"{name}_bucket", {**labels, "le": "+Inf" if math.isinf(end) else f"{end:g}"}, cumulative
            )
        yield Sample(f"{name}_sum", labels, value.total_seconds)
        yield Sample(f"{name}_count", labels, cumulative)
    elif isinstance(value, Summary):
        for quantile, seconds in value.quantiles():
            yield Sample(name, {**labels, "quantile": f"{quantile:g}"}, seconds)
        yield Sample(f"{name}_sum", labels, value.total_seconds)
        yield Sample(f"{name}_count", labels, value.count)
    else:
        yield Sample(name, labels, value)
