"""The JSON objects in which metrics and offerings on sale reach the forwarder. Readers validate all of the data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.metrics.metrics import SERIES, Gauge, Histogram, Labels, Recorded, Series, labelled

FORMAT = 1
MOST_SERIES = 2_000
MOST_WRITERS = 20
LONGEST_LABEL = 300
_MOST = 2.0**53
"""the largest float up to which all integers are exact"""
V = TypeVar("V")


# `writers` maps each process that wrote recently to the number of its writes in the object. A write whose response
# was lost is found there and is not repeated.
@dataclass(slots=True)
class MetricsObject:
    """The content of an object."""

    recorded: Recorded = field(default_factory=Recorded)
    writers: dict[str, int] = field(default_factory=dict)

    def noted(self, writer: str, number: int) -> dict[str, int]:
        """Return the writers after a write, at most `MOST_WRITERS`: those with the oldest writes are removed."""
        others = [(name, count) for name, count in self.writers.items() if name != writer]
        return dict([*others[-(MOST_WRITERS - 1) :], (writer, number)])

    def to_bytes(self) -> bytes:
        """Return the object as bytes."""
        recorded = self.recorded
        counters = {name: _listed(series, float) for name, series in recorded.counters.items()}
        spans = {name: _listed(series, _written) for name, series in recorded.histograms.items()}
        gauges = {
            name: {"at": gauge.at.isoformat(), "series": _listed(gauge.series, float)}
            for name, gauge in recorded.gauges.items()
        }
        content = {
            "format": FORMAT,
            "writers": [[writer, number] for writer, number in self.writers.items()],
            "counters": counters,
            "histograms": spans,
            "gauges": gauges,
        }
        return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MetricsObject:
        """Read what `to_bytes` wrote, even in another version. Metrics that this version does not know are left out.

        Raises Rejected for anything else.
        """
        try:
            content = json.loads(data)
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}")
            writers = {str(writer): int(number) for writer, number, *_ in content["writers"]}
            read = cls(_read(content), writers)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise Rejected(
                f"metrics: expected an object of format {FORMAT}, found {data[:80]!r} ({error})"
            ) from None
        if read.recorded.size > MOST_SERIES:
            raise Rejected(f"metrics: {read.recorded.size} series, more than {MOST_SERIES}")
        return read


def _listed(series: Mapping[Labels, V], write: Callable[[V], Any]) -> list[Any]:
    return [
        [dict(labels), write(value)] for labels, value in sorted(series.items(), key=lambda item: item[0])
    ]


def _written(histogram: Histogram) -> list[Any]:
    return [histogram.counts, histogram.total_seconds]


def _read(content: Mapping[str, Any]) -> Recorded:
    gauges = content["gauges"]
    return Recorded(
        {
            name: _series(family, series, _count)
            for name, series, family in _known_families(content["counters"], "counter")
        },
        {
            name: _series(family, series, _histogram)
            for name, series, family in _known_families(content["histograms"], "histogram")
        },
        {
            name: Gauge(parse_time(family["at"]), _series(family["series"], series, _finite))
            for name, series, family in _known_families(gauges, "gauge")
        },
    )


def _known_families(families: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Series, Any]]:
    for name, family in families.items():
        series = SERIES.get(name)
        if series is not None and series.kind == kind:
            yield name, series, family


def _series(rows: Any, series: Series, read: Callable[[Any, Series], V]) -> dict[Labels, V]:
    """Read the series of a metric. Series with other labels come from another version and are left out."""
    values: dict[Labels, V] = {}
    for labels, value, *_ in rows:
        if set(labels) != set(series.labels):
            continue
        if not all(isinstance(text, str) and len(text) <= LONGEST_LABEL for text in labels.values()):
            raise ValueError(f"labels {str(labels)[:80]}")
        values[labelled(**labels)] = read(value, series)
    return values


def _finite(value: Any, series: Series) -> float:
    number = float(value)
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise ValueError(f"{series.kind} {value!r}")
    return number


def _count(value: Any, series: Series) -> float:
    number = _finite(value, series)
    if not 0 <= number <= _MOST:
        raise ValueError(f"{series.kind} {value!r}")
    return number


def _histogram(value: Any, series: Series) -> Histogram:
    counts, total_seconds, *_ = value
    if len(counts) != len(series.buckets):
        raise ValueError(f"{len(counts)} buckets, not {len(series.buckets)}")
    return Histogram(
        series.buckets, [int(_count(count, series)) for count in counts], _count(total_seconds, series)
    )


ON_SALE_FORMAT = 1
MOST_OFFERINGS = 20_000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class OfferingOnSale:
    """One way to buy a type. `is_available` is False while EC2 has recently had no capacity for it."""

    capacity_type: str
    zone: str
    price_hourly_usd: float
    is_available: bool


@dataclass(frozen=True, slots=True)
class TypeOnSale:
    """An instance type with those of its offerings that at least one NodePool allows."""

    cpu_cores: int
    memory_bytes: int
    offerings: tuple[OfferingOnSale, ...]


OnSale = Mapping[str, TypeOnSale]
"""Name of an instance type → its data, sorted by name"""


def write_on_sale(types: OnSale) -> bytes:
    """Return the data as bytes, identical for equal content."""
    content = {
        name: [
            kind.cpu_cores,
            kind.memory_bytes,
            [[o.capacity_type, o.zone, o.price_hourly_usd, int(o.is_available)] for o in kind.offerings],
        ]
        for name, kind in types.items()
    }
    return json.dumps(
        {"format": ON_SALE_FORMAT, "types": content}, separators=(",", ":"), sort_keys=True
    ).encode()


def read_on_sale(data: bytes) -> OnSale:
    """Read what `write_on_sale` wrote. Raises Rejected for anything else."""
    try:
        content = json.loads(data)
        if content["format"] != ON_SALE_FORMAT:
            raise ValueError(f"format {content['format']!r}")
        types = {_name(name): _type(kind) for name, kind in content["types"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise Rejected(
            f"offerings: expected an object of format {ON_SALE_FORMAT}, found {data[:80]!r} ({error})"
        ) from None
    if sum(len(kind.offerings) for kind in types.values()) > MOST_OFFERINGS:
        raise Rejected(f"offerings: more than {MOST_OFFERINGS}")
    return types


def _type(columns: Any) -> TypeOnSale:
    cpu_cores, memory_bytes, offerings, *_ = columns  # a later version may have added columns
    on_sale = tuple(
        OfferingOnSale(_name(capacity_type), _name(zone), _price(price), is_available == 1)
        for capacity_type, zone, price, is_available, *_ in offerings
    )
    return TypeOnSale(int(cpu_cores), int(memory_bytes), on_sale)


def _name(text: Any) -> str:
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError(f"name {str(text)[:80]!r}")
    return text


def _price(number: Any) -> float:
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError(f"price {number!r}")
    return float(number)
