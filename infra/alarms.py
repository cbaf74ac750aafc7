"""Alarms: each says that somebody has to look, and at what. None fires on one error that a retry mends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import names

NAMESPACE = "nodesmith"
WAITING_SECONDS = 300  # a hint that old means that nobody looks: ticks come every few minutes at most


@dataclass(frozen=True, slots=True)
class _Alarm:
    name: str
    meaning: str
    metric: cloudwatch.Metric
    periods: int = 1
    threshold: float = 1
    below: bool = False


def lambda_metric(function: str, name: str, statistic: str = "Sum", minutes: int = 5) -> cloudwatch.Metric:
    """Name a metric of a function."""
    return _metric("AWS/Lambda", name, {"FunctionName": function}, statistic, minutes)


def queue_metric(queue: str, name: str, statistic: str = "Maximum", minutes: int = 1) -> cloudwatch.Metric:
    """Name a metric of a queue."""
    return _metric("AWS/SQS", name, {"QueueName": queue}, statistic, minutes)


def own_metric(name: str, concern: str, statistic: str = "Sum") -> cloudwatch.Metric:
    """Name a metric that the functions themselves write (`nodesmith.telemetry`), for all clusters of the region."""
    return _metric(NAMESPACE, name, {"concern": concern}, statistic, 5)


def watch_function(scope: Construct, function: str, topic_arn: str) -> None:
    """Watch a function for errors that last, and for throttling."""
    errors, throttles = (lambda_metric(function, name) for name in ("Errors", "Throttles"))
    _raise(
        scope,
        topic_arn,
        _Alarm(f"{function}-errors", "fails every time for a quarter of an hour: see its log", errors, 3),
        _Alarm(f"{function}-throttles", "is throttled: raise the account's Lambda concurrency", throttles, 3),
    )


def watch_silence(scope: Construct, function: str, tick_minutes: int, topic_arn: str) -> None:
    """Watch a function that a schedule wakes. The others have nothing to do while no cluster is registered."""
    runs = lambda_metric(function, "Invocations", minutes=max(5, tick_minutes))
    meaning = "has not run at three ticks: see its schedule"
    _raise(scope, topic_arn, _Alarm(f"{function}-silent", meaning, runs, 3, below=True))


def watch_refusals(scope: Construct, concern: str, topic_arn: str) -> None:
    """Watch a concern for input that it refuses, wherever its functions run."""
    rejected = own_metric("Rejected", concern)
    meaning = "reads what it can not use: the log names object and remedy"
    _raise(scope, topic_arn, _Alarm(f"{names.function_name(concern)}-rejected", meaning, rejected, 3))


def watch_queues(scope: Construct, queue: str, topic_arn: str, *, tried_again: bool) -> None:
    """Watch a queue and what follows it: messages given up, and messages that nobody takes."""
    given_up = queue_metric(f"{queue}-dead", "ApproximateNumberOfMessagesVisible")
    meaning = "holds messages that failed every time: see the function's log"
    _raise(scope, topic_arn, _Alarm(f"{queue}-dead-not-empty", meaning, given_up))
    for name in (queue, f"{queue}-again") if tried_again else (queue,):
        age = queue_metric(name, "ApproximateAgeOfOldestMessage")
        meaning = "holds old messages: the function fails or is slow"
        _raise(scope, topic_arn, _Alarm(f"{name}-waiting", meaning, age, 3, WAITING_SECONDS))


def watch_clusters(scope: Construct, topic_arn: str) -> None:
    """Watch what the functions tell of clusters; the log says of which.

    Observation writes snapshots only while a forwarder is away. A NodePool whose nodes do not join is left alone longer
    and longer. Pods are to have their grace where EC2 gives notice: that is what interruption is for.
    """
    away = own_metric("SnapshotsWritten", "observation")
    killed = own_metric("PodsKilledWithoutGrace", "termination")
    unhealthy = own_metric("NodePoolsUnhealthy", "readiness")
    _raise(
        scope,
        topic_arn,
        _Alarm("nodesmith-forwarder-away", "a forwarder sends no snapshots: see its pod", away, 3),
        _Alarm(
            "nodesmith-killed-without-grace",
            "pods were not given their grace though EC2 had given notice: see the log of termination",
            killed,
        ),
        _Alarm(
            "nodesmith-nodes-do-not-join",
            "a NodePool's nodes do not join: see its condition NodeRegistrationHealthy",
            unhealthy,
            2,
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


def _raise(scope: Construct, topic_arn: str, *alarms: _Alarm) -> None:
    """Make the alarms. Silence is told by missing data, which breaches; for all others it means that all is well."""
    topic = sns.Topic.from_topic_arn(scope, f"Topic{alarms[0].name}", topic_arn) if topic_arn else None
    comparison, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
    for each in alarms:
        alarm = cloudwatch.Alarm(
            scope,
            each.name,
            alarm_name=each.name,
            alarm_description=f"{each.name}: {each.meaning} (docs/operations.md, alarms)",
            metric=each.metric,
            threshold=each.threshold,
            evaluation_periods=each.periods,
            comparison_operator=(
                comparison.LESS_THAN_THRESHOLD
                if each.below
                else comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
            ),
            treat_missing_data=missing.BREACHING if each.below else missing.NOT_BREACHING,
        )
        if topic is not None:
            alarm.add_alarm_action(actions.SnsAction(topic))
            alarm.add_ok_action(actions.SnsAction(topic))
