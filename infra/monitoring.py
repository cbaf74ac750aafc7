"""Alarms, and the region's dashboard: a row of the same graphs for each function, and a row about interruptions.

Each alarm needs a person's attention and says where to look; none fires on a single error that a retry fixes.
Functions record how their runs end, and dispatch evaluates the records (`nodesmith.decisions.dispatch`). A
CloudWatch alarm costs 0.10 USD a month, so there are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import names
from infra.functions.concerns import CLUSTER_CONCERNS
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME, QUEUE_NAME, InterruptionCause

NAMESPACE = "nodesmith"


@dataclass(frozen=True, slots=True)
class _Alarm:
    """One alarm. `is_missing_bad` is for a metric that always has data when all is well: missing data then breaches."""

    name: str
    meaning: str
    metric: cloudwatch.Metric
    periods: int = 1
    threshold: float = 1
    is_missing_bad: bool = False


def lambda_metric(function: str, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
    """Return a metric of a function."""
    return _metric("AWS/Lambda", name, {"FunctionName": function}, statistic, 5)


def queue_metric(queue: str, name: str) -> cloudwatch.Metric:
    """Return the maximum of a metric of a queue, minute by minute."""
    return _metric("AWS/SQS", name, {"QueueName": queue}, "Maximum", 1)


def own_metric(name: str, concern: str, statistic: str = "Sum") -> cloudwatch.Metric:
    """Return a metric that functions write (`nodesmith.composition.telemetry`), for all clusters of the region."""
    return _metric(NAMESPACE, name, {"concern": concern}, statistic, 5)


def watch_health(scope: Construct, topic_arn: str) -> None:
    """Make the alarms on the health that dispatch reports, and on dispatch itself, which must run to report it.

    Lambda writes the metric `Errors` for each invocation, 0 for one that succeeds. Its sum therefore shows errors, and
    its absence shows that nothing runs.
    """
    dispatch = names.function_name("dispatch")
    unhealthy = own_metric("Unhealthy", "dispatch")
    _add_alarms(
        scope,
        topic_arn,
        _Alarm("nodesmith-unhealthy", "a finding that no retry fixes; run `nodesmith doctor`", unhealthy, 2),
        _Alarm(
            "nodesmith-dispatch",
            "dispatch has failed or not run for 15 minutes; check its log and its schedule",
            lambda_metric(dispatch, "Errors"),
            3,
            is_missing_bad=True,
        ),
    )


def _metric(
    namespace: str, name: str, dimensions: Mapping[str, str], statistic: str, minutes: int
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dict(dimensions),
        statistic=statistic,
        period=Duration.minutes(minutes),
    )


def _add_alarms(scope: Construct, topic_arn: str, *alarms: _Alarm) -> None:
    """Make the alarms."""
    topic = sns.Topic.from_topic_arn(scope, f"Topic{alarms[0].name}", topic_arn) if topic_arn else None
    comparison, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
    for spec in alarms:
        alarm = cloudwatch.Alarm(
            scope,
            spec.name,
            alarm_name=spec.name,
            alarm_description=f"{spec.name}: {spec.meaning} (docs/health.md, alarms)",
            metric=spec.metric,
            threshold=spec.threshold,
            evaluation_periods=spec.periods,
            comparison_operator=comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=missing.BREACHING if spec.is_missing_bad else missing.NOT_BREACHING,
        )
        if topic is not None:
            alarm.add_alarm_action(actions.SnsAction(topic))
            alarm.add_ok_action(actions.SnsAction(topic))


def dashboard(scope: Construct, region: str, vpcs: Iterable[str]) -> None:
    """Make the dashboard; its name includes the region because dashboards belong to the account."""
    rows = [
        _function_graphs(concern.name, vpc)
        for vpc in ("", *vpcs)
        for concern in CLUSTER_CONCERNS
        if concern.calls_api_server or not vpc
    ]
    rows += [_function_graphs(concern) for concern in ("catalog", "dispatch")]
    routed = [own_metric(name, "routing") for name in ("NoticesRouted", "NoticesOfOthers")]
    rows.append(
        [*_function_graphs("routing"), _graph("routing: events for our instances, for others", *routed)]
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
    noticed = [own_metric(cause, "interruption") for cause in InterruptionCause]
    put_off = own_metric("NoticesPutOff", "interruption")
    steps = ("NoticeToLaunchedSeconds", "NoticeToReadySeconds", "NoticeToDrainedSeconds")
    durations = [own_metric(step, "termination", "Maximum") for step in steps]
    killed, waited = (
        own_metric(name, "termination") for name in ("PodsKilledWithoutGrace", "PodPendingSeconds")
    )
    return [
        _graph("notices: by cause", *noticed),
        _graph("notices: postponed", put_off),
        _graph("notices: longest time to replaced, ready, drained, seconds", *durations),
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
