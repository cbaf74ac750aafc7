"""Queries in PromQL over the series of the selected clusters."""

from __future__ import annotations

from monitoring.panels import Panel, Query

_ALL = 'cluster=~"$cluster"'
CPU, MEMORY = 'resource_type="cpu"', 'resource_type="memory"'
USD = 'resource_type="nodesmith.dev/usd-per-hour"'
SPOT = 'capacity_type="spot"'
UNTRUE = 'status!="True"'


def selected(series: str, *matchers: str) -> str:
    """Return a selector of a series of Karpenter's in the selected clusters."""
    name = series if series.startswith("operator_") else f"karpenter_{series}"
    return f"{name}{{{','.join((_ALL, *matchers))}}}"


def grown(series: str, by: str, *matchers: str, scale: str = "increase") -> str:
    """Return how much counters grew within an interval of the graph, by labels."""
    return f"sum by ({by}) ({scale}({selected(series, *matchers)}[$__rate_interval]))"


def quantiles(series: str, *matchers: str, by: str = "") -> tuple[Query, ...]:
    """Return the median and the slowest tenth and hundredth of a histogram."""
    labels, legend = (f"le, {by}", f"{{{{{by}}}}} ") if by else ("le", "")
    buckets = f"sum by ({labels}) (rate({selected(f'{series}_bucket', *matchers)}[$__rate_interval]))"
    return tuple(
        Query(f"histogram_quantile({share}, {buckets})", f"{legend}p{round(share * 100)}")
        for share in (0.5, 0.9, 0.99)
    )


def mean(series: str, by: str) -> Query:
    """Return the mean of a histogram's durations, by a label."""
    total, number = (grown(f"{series}_{part}", by, scale="rate") for part in ("sum", "count"))
    return Query(f"{total} / {number}", f"{{{{{by}}}}}")


def conditions(kind: str, title: str) -> Panel:
    """Return a table of the objects of a kind that have a condition that is not True."""
    series = f"operator_{kind}_status_condition_count"
    expression = f"sum by (cluster, name, type, reason) ({selected(series, UNTRUE)}) > 0"
    return Panel(title, (Query(expression, "{{name}}: {{type}} {{reason}}", instant=True),), kind="table")
