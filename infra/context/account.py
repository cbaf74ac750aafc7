"""The `account` of cdk.json: notices of AWS about what the account costs, in a stack of its own. Off by default.

AWS's billing data is hours old, so these notices show spending that nodesmith does not bound; they stop nothing. All of
them exist in one region only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, Environment, Stack, Tags
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_ce as ce
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import names
from infra.context.faults import number, text, texts, unknown

BILLING_REGION = "us-east-1"
ACCOUNT_KEYS = (
    "topicArn",
    "emails",
    "estimatedChargesUsd",
    "budgetUsdPerMonth",
    "anomalyUsd",
    "anomalyMonitorArn",
)
_AMOUNTS = ("estimatedChargesUsd", "budgetUsdPerMonth", "anomalyUsd")
MOST_USD = 1_000_000_000
MOST_EMAILS = 10
TOPIC = re.compile(rf"arn:aws:sns:{BILLING_REGION}:\d{{12}}:[\w-]{{1,256}}", re.ASCII)
MONITOR = re.compile(r"arn:aws:ce::\d{12}:anomalymonitor/[\w-]{1,64}", re.ASCII)
EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}", re.ASCII)
_THRESHOLDS = (("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100))


@dataclass(frozen=True, slots=True)
class AccountContext:
    """Whom to notify, and from which amounts in US dollars on; None for no such notice.

    `anomaly_monitor_arn` is an existing monitor of Cost Anomaly Detection; without it, one is made.
    """

    topic_arn: str = ""
    emails: tuple[str, ...] = ()
    estimated_charges_usd: int | None = None
    budget_usd_per_month: int | None = None
    anomaly_usd: int | None = None
    anomaly_monitor_arn: str = ""


def account_faults(entry: Any) -> Iterator[str]:
    """Yield the faults of the value of `account`."""
    if not isinstance(entry, dict):
        yield f"account: expected an object with some of {', '.join(ACCOUNT_KEYS)}, found {entry!r}"
        return
    yield from unknown("account", entry, ACCOUNT_KEYS)
    for key in _AMOUNTS:
        if (amount := entry.get(key)) is not None:
            yield from number(f"account.{key}", amount, 1, MOST_USD)
    for key, pattern, expected in (
        ("topicArn", TOPIC, f"the ARN of an SNS topic in {BILLING_REGION}"),
        ("anomalyMonitorArn", MONITOR, "the ARN of a monitor of Cost Anomaly Detection"),
    ):
        if key in entry:
            yield from text(f"account.{key}", entry[key], pattern, expected)
    yield from texts("account.emails", entry.get("emails", []), EMAIL, "addresses of email")
    if isinstance(entry.get("emails"), list) and len(entry["emails"]) > MOST_EMAILS:
        yield f"account.emails: expected at most {MOST_EMAILS} addresses, found {len(entry['emails'])}"
    if not any(key in entry for key in _AMOUNTS):
        yield f"account: expected an amount in {', '.join(_AMOUNTS)}, found none"
    if "estimatedChargesUsd" in entry and not entry.get("topicArn"):
        yield "account.topicArn: expected a topic, which an alarm on estimated charges needs, found none"
    if not entry.get("topicArn") and not entry.get("emails"):
        yield "account: expected topicArn or emails to notify, found neither"


def read_account(entry: Mapping[str, Any]) -> AccountContext:
    """Read a value that has been checked for faults."""
    charges, budget, anomaly = (entry.get(key) for key in _AMOUNTS)
    monitor = entry.get("anomalyMonitorArn", "")
    notified = entry.get("topicArn", ""), tuple(entry.get("emails", ()))
    return AccountContext(*notified, charges, budget, anomaly, monitor)


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
    """Subscribe to anomalies. AWS notifies a topic at once, and addresses of email once a day."""
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
            ce.CfnAnomalySubscription.SubscriberProperty(address=address, type=each)
            for address, each in _subscribers(account)
            if each == kind
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
