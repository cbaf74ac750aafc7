"""The cluster's dashboard: one row per concern, the same four graphs in each."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra import names
from infra.alarms import lambda_metric, own_metric, queue_metric


def dashboard(scope: Construct, region: str, cluster: str, concerns: Sequence[str]) -> None:
    """Make the dashboard; the region is in its name because dashboards are the account's."""
    rows = [_row(cluster, concern) for concern in concerns]
    rows.append(_function_graphs("", "catalog", names.CATALOG_FUNCTION))
    cloudwatch.Dashboard(
        scope,
        "Dashboard",
        dashboard_name=f"nodesmith-{region}-{cluster}",
        widgets=[list(row) for row in rows],
    )


def _row(cluster: str, concern: str) -> list[cloudwatch.IWidget]:
    queue = names.physical_name(cluster, concern)
    dead = names.physical_name(cluster, f"{concern}-dead")
    waiting = queue_metric(queue, "ApproximateNumberOfMessagesVisible")
    age = queue_metric(queue, "ApproximateAgeOfOldestMessage")
    given_up = queue_metric(dead, "ApproximateNumberOfMessagesVisible")
    return [
        *_function_graphs(cluster, concern, queue),
        _graph(f"{concern}: oldest message, seconds", age),
        _graph(f"{concern}: messages waiting, given up", waiting, given_up),
    ]


def _function_graphs(cluster: str, concern: str, function: str) -> list[cloudwatch.IWidget]:
    counts = [lambda_metric(function, name) for name in ("Invocations", "Errors", "Throttles")]
    counts.append(own_metric("Rejected", cluster, concern))
    durations = [lambda_metric(function, "Duration", statistic) for statistic in ("p50", "p99")]
    return [_graph(f"{concern}: runs", *counts), _graph(f"{concern}: duration, ms", *durations)]


def _graph(title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=6, height=5)
