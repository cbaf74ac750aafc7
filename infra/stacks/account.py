"""The stack of the account: AWS's notices about its costs. It exists only if cdk.json has `account`.

AWS's billing data is hours old, so these notices show spending that nodesmith does not bound; they stop nothing. All of
them exist in one region only.
"""

from __future__ import annotations

import json

from aws_cdk import Duration, Environment, Stack, Tags
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_ce as ce
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import names
from infra.context.account import BILLING_REGION, AccountContext

_THRESHOLDS = (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))


class AccountStack(Stack):
    """Notices about what the whole account costs."""

    def __init__(self, scope: Construct, account: AccountContext) -> None:
        super().__init__(
            scope,
            "nodesmith-account",
            env=Environment(region=BILLING_REGION),
            description="nodesmith: notices about what the account costs",
        )
        Tags.of(self).add(names.TAG, "shared")
        if account.estimated_charges_usd is not None:
            _alarm(self, account.estimated_charges_usd, account.topic_arn)
        if account.budget_usd_per_month is not None:
            _budget(self, account.budget_usd_per_month, account)
        if account.anomaly_usd is not None:
            _anomalies(self, account.anomaly_usd, account)


def _alarm(scope: Construct, amount: int, topic_arn: str) -> None:
    """Make an alarm on the charges since the month began, which AWS estimates several times a day."""
    alarm = cloudwatch.Alarm(
        scope,
        "EstimatedCharges",
        alarm_name="nodesmith-estimated-charges",
        alarm_description=f"The account's estimated charges of the month have reached {amount} USD (docs/limits.md)",
        metric=cloudwatch.Metric(
            namespace="AWS/Billing",
            metric_name="EstimatedCharges",
            dimensions_map={"Currency": "USD"},
            statistic="Maximum",
            period=Duration.hours(6),
        ),
        threshold=amount,
        evaluation_periods=1,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        treat_missing_data=cloudwatch.TreatMissingData.MISSING,
    )
    alarm.add_alarm_action(actions.SnsAction(sns.Topic.from_topic_arn(scope, "Topic", topic_arn)))


def _budget(scope: Construct, amount: int, account: AccountContext) -> None:
    subscribers = [
        budgets.CfnBudget.SubscriberProperty(address=address, subscription_type=kind)
        for address, kind in _subscribers(account)
    ]
    budgets.CfnBudget(
        scope,
        "Budget",
        budget=budgets.CfnBudget.BudgetDataProperty(
            budget_name="nodesmith",
            budget_type="COST",
            time_unit="MONTHLY",
            budget_limit=budgets.CfnBudget.SpendProperty(amount=amount, unit="USD"),
        ),
        notifications_with_subscribers=[
            budgets.CfnBudget.NotificationWithSubscribersProperty(
                notification=budgets.CfnBudget.NotificationProperty(
                    comparison_operator="GREATER_THAN",
                    notification_type=kind,
                    threshold=percent,
                    threshold_type="PERCENTAGE",
                ),
                subscribers=subscribers,
            )
            for kind, percent in _THRESHOLDS
        ],
    )


def _anomalies(scope: Construct, amount: int, account: AccountContext) -> None:
    """Subscribe to anomalies. AWS notifies a topic at once, and email addresses once a day."""
    monitor = account.anomaly_monitor_arn or (
        ce.CfnAnomalyMonitor(
            scope,
            "AnomalyMonitor",
            monitor_name="nodesmith",
            monitor_type="DIMENSIONAL",
            monitor_dimension="SERVICE",
        ).attr_monitor_arn
    )
    threshold = {
        "Dimensions": {
            "Key": "ANOMALY_TOTAL_IMPACT_ABSOLUTE",
            "MatchOptions": ["GREATER_THAN_OR_EQUAL"],
            "Values": [str(amount)],
        }
    }
    for kind, frequency in (("SNS", "IMMEDIATE"), ("EMAIL", "DAILY")):
        subscribers = [
            ce.CfnAnomalySubscription.SubscriberProperty(address=address, type=address_type)
            for address, address_type in _subscribers(account)
            if address_type == kind
        ]
        if subscribers:
            ce.CfnAnomalySubscription(
                scope,
                f"Anomalies{kind.title()}",
                subscription_name=f"nodesmith-{kind.lower()}",
                frequency=frequency,
                monitor_arn_list=[monitor],
                subscribers=subscribers,
                threshold_expression=json.dumps(threshold, separators=(",", ":")),
            )


def _subscribers(account: AccountContext) -> list[tuple[str, str]]:
    topic = [(account.topic_arn, "SNS")] if account.topic_arn else []
    return [*topic, *((address, "EMAIL") for address in account.emails)]
