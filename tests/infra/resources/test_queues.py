"""Invocations, the queue of delayed ones, ticks and EC2's events."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from infra.application import application
from infra.functions.concerns import CLUSTER_CONCERNS
from nodesmith.model.functions import MOST_ATTEMPTS, TALKING, retry_seconds
from nodesmith.settings import function_name
from tests.infra.deployment import (
    ACCOUNT,
    PLAIN_REGION,
    PRIVATE,
    REGION,
    code_on_empty_layers,
)
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]
LAMBDA = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function"
NOTICE_SECONDS = 120
PLACES = [("", concern) for concern in ALL] + [(PRIVATE, concern) for concern in TALKING]


def by_name(template: Template) -> dict[str, tuple[str, dict[str, Any]]]:
    return {each["QueueName"]: (id_, each) for id_, each in template.of_type("SQS::Queue").items()}


def mapping(template: Template) -> dict[str, Any]:
    return template.only("Lambda::EventSourceMapping")


def invocation_settings(template: Template, concern: str, vpc: str) -> dict[str, Any]:
    """Return the settings of a function's asynchronous invocations."""
    ids = {each["FunctionName"]: id_ for id_, each in template.of_type("Lambda::Function").items()}
    (found,) = (
        each
        for each in template.of_type("Lambda::EventInvokeConfig").values()
        if each["FunctionName"] == ids[function_name(concern, vpc)]
    )
    return found


def test_a_region_has_a_waiting_queue_and_a_dead_letter_queue_that_keeps_messages_longer(
    region: Template,
) -> None:
    found = by_name(region)
    assert found.keys() == {"nodesmith-waiting", "nodesmith-dead"}
    dead_id, dead = found["nodesmith-dead"]
    _, waiting = found["nodesmith-waiting"]
    assert waiting["RedrivePolicy"] == {"deadLetterTargetArn": f"{dead_id}.Arn", "maxReceiveCount": 10}
    assert dead["MessageRetentionPeriod"] > waiting["MessageRetentionPeriod"]


def test_a_message_outlasts_all_its_receives_and_is_hidden_for_six_timeouts(
    region: Template,
) -> None:
    _, waiting = by_name(region)["nodesmith-waiting"]
    assert waiting["VisibilityTimeout"] >= 6 * region.function("dispatch")["Timeout"]
    worst = waiting["RedrivePolicy"]["maxReceiveCount"] * waiting["VisibilityTimeout"]
    longest_delay = 900
    assert longest_delay + worst < waiting["MessageRetentionPeriod"]


def test_failed_runs_are_retried_for_half_an_hour_and_six_times_within_a_notice() -> None:
    waits = [seconds for attempt in range(MOST_ATTEMPTS) if (seconds := retry_seconds(attempt)) is not None]
    assert sum(waits) >= 1800
    assert len([total for total in accumulate(waits) if total < NOTICE_SECONDS]) >= 6


@pytest.mark.parametrize(("vpc", "concern"), [*PLACES, ("", "routing"), ("", "dispatch"), ("", "catalog")])
def test_an_event_whose_run_dies_is_retried_and_then_kept(region: Template, vpc: str, concern: str) -> None:
    found = invocation_settings(region, concern, vpc)
    assert found["Qualifier"] == "live"
    assert (found["MaximumRetryAttempts"], found["MaximumEventAgeInSeconds"]) == (2, 21600)
    dead = found["DestinationConfig"]["OnFailure"]["Destination"]
    assert dead == f"arn:aws:sqs:{REGION}:{ACCOUNT}:nodesmith-dead"


def test_every_function_has_an_alias_of_its_newest_version_and_versions_are_kept(
    region: Template,
) -> None:
    functions = region.of_type("Lambda::Function")
    versions = {id_: each for id_, each in region.resources.items() if each["Type"] == "AWS::Lambda::Version"}
    aliases = list(region.of_type("Lambda::Alias").values())
    assert sorted(each["FunctionName"] for each in aliases) == sorted(functions)
    for alias in aliases:
        version = versions[alias["FunctionVersion"].removesuffix(".Version")]
        assert alias["Name"] == "live"
        assert version["Properties"]["FunctionName"] == alias["FunctionName"]
        assert version["DeletionPolicy"] == "Retain"


def test_a_deployment_that_changes_anything_publishes_every_function(tmp_path: Path) -> None:
    def versions(name: str, content: str) -> set[str]:
        code = code_on_empty_layers(tmp_path / name / "layers")
        (code.layers["packing"] / "python" / "packing.txt").write_text(content)
        application({}, code, tmp_path / name / "out", PLAIN_REGION).synth()
        (written,) = (tmp_path / name / "out").glob("*.template.json")
        return set(Template.read(written).of_type("Lambda::Version"))

    before, same, after = versions("before", "1"), versions("same", "1"), versions("after", "2")
    assert before == same
    assert len(before) == len(after) == len(ALL) + 3
    assert not before & after


def test_every_queue_is_encrypted_and_requires_tls(region: Template) -> None:
    queues = region.of_type("SQS::Queue")
    policy = region.only("SQS::QueuePolicy")
    assert sorted(policy["Queues"]) == sorted(queues)
    assert policy["PolicyDocument"]["Statement"] == [
        {
            "Action": "sqs:*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Resource": "*",
        }
    ]
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())


def test_delayed_messages_feed_dispatch_and_only_failed_ones_come_back(region: Template) -> None:
    found = mapping(region)
    assert found["FunctionName"] == f"{LAMBDA}:nodesmith-dispatch:live"
    assert found["EventSourceArn"] == f"{by_name(region)['nodesmith-waiting'][0]}.Arn"
    assert found["BatchSize"] == 10
    assert found["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert not found.keys() & {"ScalingConfig", "MaximumBatchingWindowInSeconds"}


def test_only_dispatch_receives_messages_and_only_from_the_waiting_queue(region: Template) -> None:
    takers = {
        function["FunctionName"]: statement["Resource"]
        for function in region.of_type("Lambda::Function").values()
        for statement in region.statements(function["Role"].removesuffix(".Arn"))
        if "sqs:ReceiveMessage" in statement["Action"]
    }
    assert takers == {"nodesmith-dispatch": [f"arn:aws:sqs:{REGION}:{ACCOUNT}:nodesmith-waiting"]}


def test_schedules_wake_dispatch_every_minute_and_catalog_every_twelve_hours(
    region: Template,
) -> None:
    ticks = [
        (each["Target"]["Arn"], each["ScheduleExpression"], json.loads(each["Target"]["Input"]))
        for each in region.of_type("Scheduler::Schedule").values()
    ]
    at = {"reason": "tick", "at": "<aws.scheduler.scheduled-time>"}
    assert sorted(ticks, key=lambda tick: tick[:2]) == [
        (f"{LAMBDA}:nodesmith-catalog:live", "rate(60 minutes)", {"reason": "commitments"}),
        (f"{LAMBDA}:nodesmith-catalog:live", "rate(720 minutes)", {"reason": "tick"}),
        (f"{LAMBDA}:nodesmith-dispatch:live", "rate(1 minute)", at),
    ]


def test_a_tick_is_never_retried(region: Template) -> None:
    for each in region.of_type("Scheduler::Schedule").values():
        assert each["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 0


def test_ticks_come_only_from_the_stacks_own_schedules(region: Template) -> None:
    (tick,) = {each["Target"]["RoleArn"] for each in region.of_type("Scheduler::Schedule").values()}
    role = tick.removesuffix(".Arn")
    (trust,) = region.trust(role)
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "111122223333"},
        "ArnEquals": {
            "aws:SourceArn": "arn:aws:scheduler:eu-west-1:111122223333:schedule-group/nodesmith-ticks"
        },
    }
    assert region.only("Scheduler::ScheduleGroup")["Name"] == "nodesmith-ticks"
    (statement,) = region.statements(role)
    assert statement["Action"] == ["lambda:InvokeFunction"]
    invoked = {each["Target"]["Arn"] for each in region.of_type("Scheduler::Schedule").values()}
    assert sorted(statement["Resource"]) == sorted(invoked)


def test_one_set_of_rules_passes_notices_on_unchanged_for_all_clusters(region: Template) -> None:
    aliases = region.of_type("Lambda::Alias")
    (alias,) = (id_ for id_, each in aliases.items() if each["FunctionName"] == routing(region))
    rules = [
        (rule["EventPattern"], target)
        for rule in region.of_type("Events::Rule").values()
        for target in rule["Targets"]
    ]
    assert {target["Arn"] for _, target in rules} == {alias}
    assert [target.keys() - {"Arn", "Id"} for _, target in rules] == [set()] * 4
    warnings = [
        "EC2 Spot Instance Interruption Warning",
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
        "Capacity Block Reservation Expiration Warning",
        "Capacity Block Expiration Warning",
        "EC2 Instance Rebalance Recommendation",
    ]
    assert {"source": ["aws.arc-zonal-shift"]} in [pattern for pattern, _ in rules]
    reported = {kind: pattern for pattern, _ in rules for kind in pattern.get("detail-type", ())}
    assert reported == {
        **{kind: {"source": ["aws.ec2"], "detail-type": warnings} for kind in warnings},
        "EC2 Instance State-change Notification": {
            "source": ["aws.ec2"],
            "detail-type": ["EC2 Instance State-change Notification"],
            "detail": {"state": ["stopping", "stopped", "shutting-down", "terminated"]},
        },
        "AWS Health Event": {
            "source": ["aws.health"],
            "detail-type": ["AWS Health Event"],
            "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
        },
    }


def routing(template: Template) -> str:
    """Return the logical id of routing's function."""
    functions = template.of_type("Lambda::Function").items()
    (found,) = (id_ for id_, each in functions if each["FunctionName"] == "nodesmith-routing")
    return found


def test_only_the_rules_have_a_resource_policy_and_only_on_routing(region: Template) -> None:
    aliases = region.of_type("Lambda::Alias")
    allowed = list(region.of_type("Lambda::Permission").values())
    assert {aliases[each["FunctionName"]]["FunctionName"] for each in allowed} == {routing(region)}
    assert {(each["Action"], each["Principal"]) for each in allowed} == {
        ("lambda:InvokeFunction", "events.amazonaws.com")
    }
    rules = region.of_type("Events::Rule")
    assert sorted(each["SourceArn"] for each in allowed) == sorted(f"{rule}.Arn" for rule in rules)
