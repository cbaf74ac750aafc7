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


def own_metric(name: str, cluster: str, concern: str, statistic: str = "Sum") -> cloudwatch.Metric:
    """Name a metric that the functions themselves write (`nodesmith.telemetry`); the account's have no cluster."""
    whose = {"cluster": cluster} if cluster else {}
    return _metric(NAMESPACE, name, {**whose, "concern": concern}, statistic, 5)


def watch_function(
    scope: Construct, function: str, rejected: cloudwatch.Metric, tick_minutes: int, topic_arn: str
) -> None:
    """Watch a function that should run at every tick: errors and refusals that last, throttling, and silence."""
    minutes = max(5, tick_minutes)
    errors, throttles = (lambda_metric(function, name) for name in ("Errors", "Throttles"))
    runs = lambda_metric(function, "Invocations", minutes=minutes)
    _raise(
        scope,
        topic_arn,
        _Alarm(f"{function}-errors", "fails every time for a quarter of an hour: see its log", errors, 3),
        _Alarm(
            f"{function}-rejected", "reads what it can not use: the log names object and remedy", rejected, 3
        ),
        _Alarm(f"{function}-throttles", "is throttled: raise the account's Lambda concurrency", throttles, 3),
        _Alarm(
            f"{function}-silent", "has not run at three ticks: see schedule and queue", runs, 3, below=True
        ),
    )


def watch_queue(scope: Construct, queue: str, dead: str, topic_arn: str) -> None:
    """Watch a queue and its dead letters: messages given up, and messages that nobody takes."""
    given_up = queue_metric(dead, "ApproximateNumberOfMessagesVisible")
    meaning = "holds messages that failed every time: see the function's log"
    _raise(scope, topic_arn, _Alarm(f"{dead}-not-empty", meaning, given_up))
    watch_waiting(scope, queue, topic_arn)


def watch_waiting(scope: Construct, queue: str, topic_arn: str) -> None:
    """Watch a queue for messages that nobody takes."""
    age = queue_metric(queue, "ApproximateAgeOfOldestMessage")
    meaning = "holds old messages: the function fails or is slow"
    _raise(scope, topic_arn, _Alarm(f"{queue}-waiting", meaning, age, 3, WAITING_SECONDS))


def watch_forwarder(scope: Construct, cluster: str, topic_arn: str) -> None:
    """Watch the forwarder by who stands in for it: observation writes snapshots only while it is away."""
    written = own_metric("SnapshotsWritten", cluster, "observation")
    name = names.physical_name(cluster, "forwarder-away")
    _raise(scope, topic_arn, _Alarm(name, "sends no snapshots: see its pod", written, 3))


def watch_interruptions(scope: Construct, cluster: str, topic_arn: str) -> None:
    """Watch whether pods had their grace where EC2 gave notice: that is what interruption is for."""
    killed = own_metric("PodsKilledWithoutGrace", cluster, "termination")
    name = names.physical_name(cluster, "killed-without-grace")
    meaning = "pods were not given their grace though EC2 had given notice: see the row of interruption"
    _raise(scope, topic_arn, _Alarm(name, meaning, killed))


def watch_registrations(scope: Construct, cluster: str, topic_arn: str) -> None:
    """Watch whether nodes join: a NodePool whose nodes do not is left alone longer and longer."""
    unhealthy = own_metric("NodePoolsUnhealthy", cluster, "readiness")
    name = names.physical_name(cluster, "nodes-do-not-join")
    meaning = "a NodePool's nodes do not join the cluster: see its condition NodeRegistrationHealthy"
    _raise(scope, topic_arn, _Alarm(name, meaning, unhealthy, 2))


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
