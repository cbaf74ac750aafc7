"""Alarms: each says that somebody has to look, and at what. None fires on one error that a retry mends.

Functions record how their runs end, and dispatch judges it (`nodesmith.decisions.dispatch.health`). An alarm of
CloudWatch costs 0.10 USD a month, so there are few.
"""

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


@dataclass(frozen=True, slots=True)
class _Alarm:
    """`tells_silence` is for a metric that is there whenever all is well: missing data breaches."""

    name: str
    meaning: str
    metric: cloudwatch.Metric
    periods: int = 1
    threshold: float = 1
    tells_silence: bool = False


def lambda_metric(function: str, name: str, statistic: str = "Sum", minutes: int = 5) -> cloudwatch.Metric:
    """Name a metric of a function."""
    return _metric("AWS/Lambda", name, {"FunctionName": function}, statistic, minutes)


def queue_metric(queue: str, name: str, statistic: str = "Maximum", minutes: int = 1) -> cloudwatch.Metric:
    """Name a metric of a queue."""
    return _metric("AWS/SQS", name, {"QueueName": queue}, statistic, minutes)


def own_metric(name: str, concern: str, statistic: str = "Sum") -> cloudwatch.Metric:
    """Name a metric that the functions themselves write (`nodesmith.telemetry`), for all clusters of the region."""
    return _metric(NAMESPACE, name, {"concern": concern}, statistic, 5)


def watch_health(scope: Construct, topic_arn: str) -> None:
    """Watch what dispatch says of the health of everything, and that dispatch runs and can say it.

    Lambda writes the metric `Errors` for each invocation, 0 for one that succeeds. So errors are told by its sum, and
    that nothing runs by its absence.
    """
    dispatch = names.function_name("dispatch")
    unwell = own_metric("Unwell", "dispatch")
    _raise(
        scope,
        topic_arn,
        _Alarm("nodesmith-unwell", "something is wrong that no retry mends: `nodesmith doctor`", unwell, 2),
        _Alarm(
            "nodesmith-dispatch",
            "fails, or has not run, for a quarter of an hour: see its log and its schedule",
            lambda_metric(dispatch, "Errors"),
            3,
            tells_silence=True,
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
    """Make the alarms."""
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
            comparison_operator=comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=missing.BREACHING if each.tells_silence else missing.NOT_BREACHING,
        )
        if topic is not None:
            alarm.add_alarm_action(actions.SnsAction(topic))
            alarm.add_ok_action(actions.SnsAction(topic))
