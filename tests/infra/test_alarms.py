"""What somebody is told: alarms and the dashboard."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.concerns import CLUSTER_CONCERNS
from nodesmith.telemetry import Telemetry
from tests.infra.deployment import TOPIC
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]
SHARED = ["catalog", "dispatch", "routing"]


def watched(template: Template) -> set[tuple[str, str]]:
    """Give what has an alarm: (metric, name of the function or queue)."""
    return {
        (each["MetricName"], each["Dimensions"][0]["Value"])
        for each in template.of_type("CloudWatch::Alarm").values()
    }


def alarm(template: Template, name: str) -> dict[str, Any]:
    (found,) = (each for each in template.of_type("CloudWatch::Alarm").values() if each["AlarmName"] == name)
    return found


def test_every_function_is_watched_for_errors_and_throttles(region: Template, plain: Template) -> None:
    for template in (region, plain):
        for function in template.of_type("Lambda::Function").values():
            for metric in ("Errors", "Throttles"):
                assert (metric, function["FunctionName"]) in watched(template)


def test_functions_that_schedules_wake_are_watched_for_silence_and_no_others(plain: Template) -> None:
    """The others have nothing to do in a region without clusters."""
    silent = {name for metric, name in watched(plain) if metric == "Invocations"}
    functions = {id_: each["FunctionName"] for id_, each in plain.of_type("Lambda::Function").items()}
    schedules = plain.of_type("Scheduler::Schedule").values()
    assert silent == {functions[each["Target"]["Arn"].removesuffix(".Arn")] for each in schedules}


def test_what_the_functions_say_of_themselves_is_what_the_alarms_listen_to(
    region: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{concern}-rejected" for concern in (*ALL, *SHARED)]
    names += ["forwarder-away", "nodes-do-not-join", "killed-without-grace"]
    heard = {listened(alarm(region, f"nodesmith-{name}")) for name in names}
    for concern in (*ALL, *SHARED):
        Telemetry(concern, "alpha" if concern in ALL else "").rejected("a reason")
    Telemetry("observation", "alpha").ran({"SnapshotsWritten": 1})
    Telemetry("readiness", "alpha").ran({"NodePoolsUnhealthy": 1})
    Telemetry("termination", "alpha").note("PodsKilledWithoutGrace", 1)
    assert heard == {said(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line}


def listened(found: dict[str, Any]) -> tuple[str, str, frozenset[tuple[str, str]]]:
    """Give namespace, metric and dimensions of an alarm."""
    dimensions = frozenset((each["Name"], each["Value"]) for each in found["Dimensions"])
    return found["Namespace"], found["MetricName"], dimensions


def said(line: str) -> tuple[str, str, frozenset[tuple[str, str]]]:
    """Give namespace, metric and dimensions of a line in the embedded metric format."""
    document = json.loads(line)
    (written,) = document["_aws"]["CloudWatchMetrics"]
    (names,) = written["Dimensions"]
    dimensions = frozenset((name, document[name]) for name in names)
    return written["Namespace"], written["Metrics"][0]["Name"], dimensions


def test_every_queue_is_watched_for_what_waits_and_what_was_given_up(
    region: Template, plain: Template
) -> None:
    for template in (region, plain):
        for queue in template.of_type("SQS::Queue").values():
            metric = (
                "ApproximateAgeOfOldestMessage"
                if "RedrivePolicy" in queue
                else "ApproximateNumberOfMessagesVisible"
            )
            assert (metric, queue["QueueName"]) in watched(template)


def test_silence_is_an_alarm_and_missing_errors_are_none(plain: Template) -> None:
    silent = alarm(plain, "nodesmith-dispatch-silent")
    assert (silent["ComparisonOperator"], silent["TreatMissingData"]) == ("LessThanThreshold", "breaching")
    errors = alarm(plain, "nodesmith-lifecycle-errors")
    assert errors["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert errors["TreatMissingData"] == "notBreaching"


def test_silence_takes_longer_than_three_ticks_of_a_slow_function(plain: Template) -> None:
    for concern, seconds in (("dispatch", 300), ("routing", 300), ("catalog", 3600)):
        silent = alarm(plain, f"nodesmith-{concern}-silent")
        assert silent["Period"] * silent["EvaluationPeriods"] == 3 * seconds


def test_alarms_go_to_the_topic_where_there_is_one(region: Template, plain: Template) -> None:
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
    assert titles == {name.removeprefix("nodesmith-") for name in functions} | {"notices"}
    metrics = [metric for each in widgets for metric in each["properties"]["metrics"]]
    shown = {metric[3] for metric in metrics if metric[0].startswith("AWS/")}
    assert shown == functions | queues - {"nodesmith-routing-again"}
    assert not [metric for metric in metrics if "cluster" in metric]


def test_a_dashboard_costs_money_and_is_made_only_where_it_is_asked_for(plain: Template) -> None:
    assert "AWS::CloudWatch::Dashboard" not in {each["Type"] for each in plain.resources.values()}
