"""Alarms and the dashboard."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from nodesmith.composition.telemetry import Telemetry
from nodesmith.decisions.dispatch import REGION_MINUTES
from nodesmith.model.functions import OBSERVED_TICK_MINUTES, TICK_MINUTES
from nodesmith.settings import dead_letters_url, function_name
from tests.infra.deployment import TOPIC
from tests.infra.templates import Template


def alarm(template: Template, name: str) -> dict[str, Any]:
    (found,) = (each for each in template.of_type("CloudWatch::Alarm").values() if each["AlarmName"] == name)
    return found


def test_there_are_two_alarms_whatever_is_deployed(region: Template, plain: Template) -> None:
    for template in (region, plain):
        names = {each["AlarmName"] for each in template.of_type("CloudWatch::Alarm").values()}
        assert names == {"nodesmith-unhealthy", "nodesmith-dispatch"}


def test_an_alarm_watches_the_metric_in_which_dispatch_reports_health(
    plain: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    Telemetry("dispatch", "").alarm("Unhealthy", 2)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "_aws" in line)
    assert listened(alarm(plain, "nodesmith-unhealthy")) == said(line)


def test_dispatch_itself_is_watched_by_lambdas_own_metric(plain: Template) -> None:
    function = frozenset({("FunctionName", "nodesmith-dispatch")})
    assert listened(alarm(plain, "nodesmith-dispatch")) == ("AWS/Lambda", "Errors", function)


@pytest.mark.parametrize(
    ("what", "fires", "periods"),
    [
        ("runs that succeed", False, [[0, 0, 0, 0, 0]] * 3),
        ("one error in a quarter of an hour", False, [[0, 0], [1, 0], [0, 0]]),
        ("a gap of ten minutes", False, [[0, 0], [], []]),
        ("every run fails", True, [[1, 1, 1, 1, 1]] * 3),
        ("one run of five fails in each period", True, [[0, 0, 1, 0, 0]] * 3),
        ("nothing runs", True, [[], [], []]),
        ("nothing runs, and then all runs fail", True, [[], [1, 1], [1]]),
    ],
)
def test_the_alarm_on_dispatch_fires_when_it_fails_and_when_it_does_not_run(
    what: str, fires: bool, periods: list[list[int]], plain: Template
) -> None:
    """Lambda writes an `Errors` of 0 or 1 for each invocation; each of the `periods` is five minutes long."""
    found = alarm(plain, "nodesmith-dispatch")
    assert (found["Period"], found["EvaluationPeriods"], found["Statistic"]) == (300, len(periods), "Sum")
    assert found["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    missing = found["TreatMissingData"] == "breaching"
    breached = [sum(written) >= found["Threshold"] if written else missing for written in periods]
    assert all(breached) is fires, what


def test_dispatch_checks_the_dead_letter_queue(region: Template) -> None:
    queues = {each["QueueName"] for each in region.of_type("SQS::Queue").values()}
    url = region.function("dispatch")["Environment"]["Variables"]["QUEUE_URL"]
    assert dead_letters_url(url).rpartition("/")[2] in queues


def test_the_health_of_every_function_but_dispatch_is_judged(plain: Template) -> None:
    functions = {each["FunctionName"] for each in plain.of_type("Lambda::Function").values()}
    judged = {function_name(concern) for concern in (*TICK_MINUTES, *OBSERVED_TICK_MINUTES, *REGION_MINUTES)}
    assert judged == functions - {"nodesmith-dispatch"}


def listened(found: dict[str, Any]) -> tuple[str, str, frozenset[tuple[str, str]]]:
    """Return namespace, metric and dimensions of an alarm."""
    dimensions = frozenset((each["Name"], each["Value"]) for each in found["Dimensions"])
    return found["Namespace"], found["MetricName"], dimensions


def said(line: str) -> tuple[str, str, frozenset[tuple[str, str]]]:
    """Return namespace, metric and dimensions of a line in the embedded metric format."""
    document = json.loads(line)
    (written,) = document["_aws"]["CloudWatchMetrics"]
    (names,) = written["Dimensions"]
    dimensions = frozenset((name, document[name]) for name in names)
    return written["Namespace"], written["Metrics"][0]["Name"], dimensions


def test_no_reported_finding_means_that_all_is_well(plain: Template) -> None:
    unhealthy = alarm(plain, "nodesmith-unhealthy")
    assert unhealthy["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert unhealthy["TreatMissingData"] == "notBreaching"


def test_alarms_go_to_the_topic_if_there_is_one(region: Template, plain: Template) -> None:
    for template, expected in ((region, [TOPIC]), (plain, None)):
        for each in template.of_type("CloudWatch::Alarm").values():
            assert each.get("AlarmActions") == expected
            assert each.get("OKActions") == expected


def test_the_dashboard_has_a_row_for_every_function_with_metrics_that_exist(region: Template) -> None:
    body = region.only("CloudWatch::Dashboard")["DashboardBody"]
    widgets = json.loads(re.sub(r"AWS::Region", "eu-west-1", body))["widgets"]
    functions = {each["FunctionName"] for each in region.of_type("Lambda::Function").values()}
    queues = {each["QueueName"] for each in region.of_type("SQS::Queue").values()}
    titles = {each["properties"]["title"].split(":")[0] for each in widgets}
    assert titles == {name.removeprefix("nodesmith-") for name in functions} | {"notices", "invocations"}
    metrics = [metric for each in widgets for metric in each["properties"]["metrics"]]
    shown = {metric[3] for metric in metrics if metric[0].startswith("AWS/")}
    assert shown == functions | queues
    assert not [metric for metric in metrics if "cluster" in metric]


def test_a_dashboard_costs_money_and_is_made_only_on_request(plain: Template) -> None:
    assert "AWS::CloudWatch::Dashboard" not in {each["Type"] for each in plain.resources.values()}
