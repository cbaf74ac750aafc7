"""The cluster's dashboard: one row per concern, the same four graphs in each; one more says how interruptions went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra import names
from infra.alarms import lambda_metric, own_metric, queue_metric
from nodesmith.settings import Fate


def dashboard(scope: Construct, region: str, cluster: str, concerns: Sequence[str]) -> None:
    """Make the dashboard; the region is in its name because dashboards are the account's."""
    named = partial(names.physical_name, cluster)
    rows = [_queue_row(cluster, concern, named) for concern in concerns]
    rows.append(_function_graphs("", "catalog", names.shared_name("catalog")))
    rows.append(_routing())
    rows.append(_interruptions(cluster))
    cloudwatch.Dashboard(
        scope,
        "Dashboard",
        dashboard_name=f"nodesmith-{region}-{cluster}",
        widgets=[list(row) for row in rows],
    )


def _queue_row(cluster: str, concern: str, named: Callable[[str], str]) -> list[cloudwatch.IWidget]:
    queue, dead = named(concern), named(f"{concern}-dead")
    waiting = queue_metric(queue, "ApproximateNumberOfMessagesVisible")
    age = queue_metric(queue, "ApproximateAgeOfOldestMessage")
    given_up = queue_metric(dead, "ApproximateNumberOfMessagesVisible")
    return [
        *_function_graphs(cluster, concern, queue),
        _graph(f"{concern}: oldest message, seconds", age),
        _graph(f"{concern}: messages waiting, given up", waiting, given_up),
    ]


def _routing() -> list[cloudwatch.IWidget]:
    """All clusters of the region have the same row."""
    told = [own_metric(name, "", "routing") for name in ("NoticesRouted", "NoticesOfOthers")]
    return [
        *_queue_row("", "routing", names.shared_name),
        _graph("routing: events of ours, of others", *told),
    ]


def _interruptions(cluster: str) -> list[cloudwatch.IWidget]:
    """Notices are interruption's to count; what became of them termination sees to its end."""
    noticed = [own_metric(fate, cluster, "interruption") for fate in Fate]
    put_off = own_metric("NoticesPutOff", cluster, "interruption")
    steps = ("NoticeToLaunchedSeconds", "NoticeToReadySeconds", "NoticeToDrainedSeconds")
    took = [own_metric(step, cluster, "termination", "Maximum") for step in steps]
    killed, waited = (
        own_metric(name, cluster, "termination") for name in ("PodsKilledWithoutGrace", "PodPendingSeconds")
    )
    again = queue_metric(
        names.physical_name(cluster, "interruption-again"), "ApproximateNumberOfMessagesVisible"
    )
    return [
        _graph("notices: by cause", *noticed),
        _graph("notices: put off, tried again", put_off, again),
        _graph("notices: longest until replaced, ready, drained, seconds", *took),
        _graph("notices: pods killed without grace, pod-seconds pending", killed, waited),
    ]


def _function_graphs(cluster: str, concern: str, function: str) -> list[cloudwatch.IWidget]:
    counts = [lambda_metric(function, name) for name in ("Invocations", "Errors", "Throttles")]
    counts.append(own_metric("Rejected", cluster, concern))
    durations = [lambda_metric(function, "Duration", statistic) for statistic in ("p50", "p99")]
    return [_graph(f"{concern}: runs", *counts), _graph(f"{concern}: duration, ms", *durations)]


def _graph(title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=6, height=5)
