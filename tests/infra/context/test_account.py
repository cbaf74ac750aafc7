"""Notices about what the account costs, and SpendingLimits of cdk.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.context.context import read_context
from infra.stacks.account import AccountStack
from nodesmith.model.limits.spendinglimits import parse_spending_limit
from tests.infra.templates import Template

TOPIC = "arn:aws:sns:us-east-1:111122223333:money"
MONITOR = "arn:aws:ce::111122223333:anomalymonitor/1234abcd-12ab"
FILE = "nodesmith-account.template.json"
ALL: dict[str, Any] = {
    "topicArn": TOPIC,
    "emails": ["money@example.com"],
    "estimatedChargesUsd": 5000,
    "budgetUsdPerMonth": 8000,
    "anomalyUsd": 200,
}


def made(entry: dict[str, Any], output: Path) -> Template:
    """Synthesise the stack alone, with cdk-nag."""
    app = App(outdir=str(output))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    account = read_context(None, None, account=entry).account
    assert account is not None
    AccountStack(app, account)
    app.synth()
    return Template.read(output / FILE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return made(ALL, tmp_path_factory.mktemp("account"))


def only(template: Template, kind: str) -> dict[str, Any]:
    (found,) = template.of_type(kind).values()
    return dict(found)


def test_no_stack_is_made_unless_cdk_json_asks_for_it(templates: dict[str, Template]) -> None:
    assert "nodesmith-account" not in templates
    assert read_context(None, None).account is None


def test_an_alarm_watches_the_estimated_charges_of_all_services_in_dollars(whole: Template) -> None:
    alarm = only(whole, "CloudWatch::Alarm")
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Billing", "EstimatedCharges")
    assert alarm["Dimensions"] == [{"Name": "Currency", "Value": "USD"}]
    assert (alarm["Threshold"], alarm["Statistic"], alarm["AlarmActions"]) == (5000, "Maximum", [TOPIC])


def test_a_budget_notifies_of_what_is_spent_and_of_what_is_foreseen(whole: Template) -> None:
    budget = only(whole, "Budgets::Budget")
    assert budget["Budget"]["BudgetLimit"] == {"Amount": 8000, "Unit": "USD"}
    reported = [
        (each["Notification"]["NotificationType"], each["Notification"]["Threshold"])
        for each in budget["NotificationsWithSubscribers"]
    ]
    assert reported == [("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100)]
    assert [
        each["SubscriptionType"] for each in budget["NotificationsWithSubscribers"][0]["Subscribers"]
    ] == [
        "SNS",
        "EMAIL",
    ]


def test_anomalies_reach_a_topic_at_once_and_email_once_a_day(whole: Template) -> None:
    assert only(whole, "CE::AnomalyMonitor")["MonitorDimension"] == "SERVICE"
    found = whole.of_type("CE::AnomalySubscription").values()
    assert {each["Subscribers"][0]["Type"]: each["Frequency"] for each in found} == {
        "SNS": "IMMEDIATE",
        "EMAIL": "DAILY",
    }
    thresholds = {json.loads(each["ThresholdExpression"])["Dimensions"]["Values"][0] for each in found}
    assert thresholds == {"200"}


def test_an_existing_monitor_is_used_and_nothing_else_is_made(tmp_path: Path) -> None:
    entry = {"emails": ["a@b.example"], "anomalyUsd": 5, "anomalyMonitorArn": MONITOR}
    template = made(entry, tmp_path)
    assert only(template, "CE::AnomalySubscription")["MonitorArnList"] == [MONITOR]
    kinds = {each["Type"] for each in json.loads((tmp_path / FILE).read_text())["Resources"].values()}
    assert kinds == {"AWS::CE::AnomalySubscription"}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"budgetUsdPerMonth": "8000 EUR"}, "account.budgetUsdPerMonth: expected a number from 1 to"),
        ({"anomalyUsd": 0}, "account.anomalyUsd: expected a number from 1 to"),
        ({"estimatedChargesUsd": -5}, "account.estimatedChargesUsd: expected a number from 1 to"),
        (
            {"topicArn": TOPIC.replace("us-east-1", "eu-west-1")},
            "account.topicArn: expected the ARN of an SNS topic",
        ),
        ({"emails": ["nobody"]}, "account.emails[0]: expected addresses of email, found 'nobody'"),
        ({"budgetUsd": 5}, "account.budgetUsd: unknown; did you mean budgetUsdPerMonth?"),
        ({"topicArn": "", "emails": []}, "account.topicArn: expected"),
    ],
)
def test_a_fault_names_what_is_expected(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the message is what is tested
        read_context(None, None, account={**ALL, **change})
    assert fault in str(raised.value)


def test_spending_limits_of_a_region_become_parameters_that_functions_read(region: Template) -> None:
    values = {
        each["Name"]: each["Value"]
        for each in region.of_type("SSM::Parameter").values()
        if each["Name"].startswith("/nodesmith/limits/")
    }
    limit = parse_spending_limit("all", values["/nodesmith/limits/all"])
    assert (limit.quota.fault, dict(limit.quota.limits)["nodesmith.dev/usd-per-hour"]) == ("", 40_000_000)


def test_a_bad_spending_limit_is_refused_before_it_is_deployed() -> None:
    regions = {"us-east-1": {"spendingLimits": {"red": {"usdPerHour": "12 EUR"}}}}
    with pytest.raises(
        ValueError, match=r"spendingLimits\.red\.usdPerHour: found '12 EUR': .*into US dollars"
    ):
        read_context(regions, None)
