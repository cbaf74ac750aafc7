"""The region's dashboard: a row of the same graphs for each function, and a row about interruptions."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra import names
from infra.alarms import lambda_metric, own_metric, queue_metric
from infra.concerns import CLUSTER_CONCERNS
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME, QUEUE_NAME, Fate


def dashboard(scope: Construct, region: str, vpcs: Iterable[str]) -> None:
    """Make the dashboard; its name includes the region because dashboards belong to the account."""
    rows = [
        _function_graphs(concern.name, vpc)
        for vpc in ("", *vpcs)
        for concern in CLUSTER_CONCERNS
        if concern.talks or not vpc
    ]
    rows += [_function_graphs(concern) for concern in ("catalog", "dispatch")]
    told = [own_metric(name, "routing") for name in ("NoticesRouted", "NoticesOfOthers")]
    rows.append(
        [*_function_graphs("routing"), _graph("routing: events for our instances, for others", *told)]
    )
    rows.append(_queue_graphs())
    rows.append(_interruptions())
    cloudwatch.Dashboard(
        scope, "Dashboard", dashboard_name=f"nodesmith-{region}", widgets=[list(row) for row in rows]
    )


def _queue_graphs() -> list[cloudwatch.IWidget]:
    """Show the invocations that wait in the queue, and those in the dead-letter queue."""
    waiting, delayed, given_up = (
        queue_metric(QUEUE_NAME, "ApproximateNumberOfMessagesVisible"),
        queue_metric(QUEUE_NAME, "ApproximateNumberOfMessagesDelayed"),
        queue_metric(DEAD_LETTER_QUEUE_NAME, "ApproximateNumberOfMessagesVisible"),
    )
    age = queue_metric(QUEUE_NAME, "ApproximateAgeOfOldestMessage")
    return [
        _graph("invocations: delayed, waiting for dispatch, dead letters", delayed, waiting, given_up),
        _graph("invocations: age of the oldest, seconds", age),
    ]


def _interruptions() -> list[cloudwatch.IWidget]:
    """Show notices, which interruption counts, and their outcome, which termination measures."""
    noticed = [own_metric(fate, "interruption") for fate in Fate]
    put_off = own_metric("NoticesPutOff", "interruption")
    steps = ("NoticeToLaunchedSeconds", "NoticeToReadySeconds", "NoticeToDrainedSeconds")
    took = [own_metric(step, "termination", "Maximum") for step in steps]
    killed, waited = (
        own_metric(name, "termination") for name in ("PodsKilledWithoutGrace", "PodPendingSeconds")
    )
    return [
        _graph("notices: by cause", *noticed),
        _graph("notices: postponed", put_off),
        _graph("notices: longest time to replaced, ready, drained, seconds", *took),
        _graph("notices: pods killed without grace, pod-seconds pending", killed, waited),
    ]


def _function_graphs(concern: str, vpc: str = "") -> list[cloudwatch.IWidget]:
    """Show runs and their durations; the metric `Rejected` covers a concern's functions in all VPCs."""
    function = names.function_name(concern, vpc)
    counts = [lambda_metric(function, name) for name in ("Invocations", "Errors", "Throttles")]
    counts.append(own_metric("Rejected", concern))
    durations = [lambda_metric(function, "Duration", statistic) for statistic in ("p50", "p99")]
    title = function.removeprefix("nodesmith-")
    return [_graph(f"{title}: runs", *counts), _graph(f"{title}: duration, ms", *durations)]


def _graph(title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=6, height=5)
