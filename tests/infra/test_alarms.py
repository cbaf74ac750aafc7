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


def watched(template: Template) -> set[tuple[str, str]]:
    """Give what has an alarm: (metric, name of the function or queue)."""
    return {
        (each["MetricName"], each["Dimensions"][0]["Value"])
        for each in template.of_type("CloudWatch::Alarm").values()
    }


def alarm(template: Template, name: str) -> dict[str, Any]:
    (found,) = (each for each in template.of_type("CloudWatch::Alarm").values() if each["AlarmName"] == name)
    return found


def test_every_function_is_watched_for_errors_throttles_and_silence(templates: dict[str, Template]) -> None:
    for template in templates.values():
        for function in template.of_type("Lambda::Function").values():
            for metric in ("Errors", "Throttles", "Invocations"):
                assert (metric, function["FunctionName"]) in watched(template)


def test_what_the_functions_say_of_themselves_is_what_the_alarms_listen_to(
    alpha: Template, account: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = {listened(alarm(alpha, f"nodesmith-alpha-{concern}-rejected")) for concern in ALL}
    heard |= {
        listened(alarm(account, "nodesmith-catalog-rejected")),
        listened(alarm(account, "nodesmith-routing-rejected")),
        listened(alarm(alpha, "nodesmith-alpha-forwarder-away")),
        listened(alarm(alpha, "nodesmith-alpha-nodes-do-not-join")),
        listened(alarm(alpha, "nodesmith-alpha-killed-without-grace")),
    }
    for concern in ALL:
        Telemetry(concern, "alpha").rejected("a reason")
    for shared in ("catalog", "routing"):
        Telemetry(shared, "").rejected("a reason")
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


def test_every_queue_is_watched_for_what_waits_and_what_was_given_up(templates: dict[str, Template]) -> None:
    for template in templates.values():
        for queue in template.of_type("SQS::Queue").values():
            metric = (
                "ApproximateAgeOfOldestMessage"
                if "RedrivePolicy" in queue
                else "ApproximateNumberOfMessagesVisible"
            )
            assert (metric, queue["QueueName"]) in watched(template)


def test_silence_is_an_alarm_and_missing_errors_are_none(alpha: Template) -> None:
    silent = alarm(alpha, "nodesmith-alpha-lifecycle-silent")
    assert (silent["ComparisonOperator"], silent["TreatMissingData"]) == ("LessThanThreshold", "breaching")
    errors = alarm(alpha, "nodesmith-alpha-lifecycle-errors")
    assert errors["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert errors["TreatMissingData"] == "notBreaching"


def test_silence_takes_longer_than_three_ticks_of_the_slowest_function(
    alpha: Template, account: Template
) -> None:
    readiness, catalog = (
        alarm(alpha, "nodesmith-alpha-readiness-silent"),
        alarm(account, "nodesmith-catalog-silent"),
    )
    assert readiness["Period"] * readiness["EvaluationPeriods"] == 3 * 300
    assert catalog["Period"] * catalog["EvaluationPeriods"] == 3 * 3600


def test_alarms_go_to_the_topic_where_there_is_one(templates: dict[str, Template], alpha: Template) -> None:
    for template in templates.values():
        expected = None if template is alpha else [TOPIC]
        for each in template.of_type("CloudWatch::Alarm").values():
            assert each.get("AlarmActions") == expected
            assert each.get("OKActions") == expected


def test_the_dashboard_has_a_row_for_every_concern_with_metrics_that_exist(alpha: Template) -> None:
    body = alpha.only("CloudWatch::Dashboard")["DashboardBody"]
    widgets = json.loads(re.sub(r"AWS::Region", "eu-west-1", body))["widgets"]
    titles = [each["properties"]["title"].split(":")[0] for each in widgets]
    assert list(dict.fromkeys(titles)) == [*ALL, "catalog", "routing", "notices"]
    metrics = [metric for each in widgets for metric in each["properties"]["metrics"]]
    shown = {metric[3] for metric in metrics if metric[0].startswith("AWS/")}
    functions = {each["FunctionName"] for each in alpha.of_type("Lambda::Function").values()}
    queues = {each["QueueName"] for each in alpha.of_type("SQS::Queue").values()}
    shared = {"nodesmith-catalog", "nodesmith-routing", "nodesmith-routing-dead"}
    assert shown == functions | queues | shared
