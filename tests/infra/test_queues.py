"""What wakes whom: queues, dead letters, ticks and EC2's events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.concerns import CLUSTER_CONCERNS
from nodesmith.adapters.redelivery import RETRY_SECONDS
from nodesmith.settings import TALKING, function_name
from tests.infra.deployment import PRIVATE
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]
PLACES = [("", concern) for concern in ALL] + [(PRIVATE, concern) for concern in TALKING]


def by_name(template: Template) -> dict[str, tuple[str, dict[str, Any]]]:
    return {each["QueueName"]: (id_, each) for id_, each in template.of_type("SQS::Queue").items()}


def mapping(template: Template, name: str) -> dict[str, Any]:
    """Give the event source mapping of a queue."""
    queue = by_name(template)[name][0]
    (found,) = (
        each
        for each in template.of_type("Lambda::EventSourceMapping").values()
        if each["EventSourceArn"] == f"{queue}.Arn"
    )
    return found


@pytest.mark.parametrize(("vpc", "concern"), PLACES)
def test_a_concern_has_a_queue_and_dead_letters_that_outlive_it(
    region: Template, vpc: str, concern: str
) -> None:
    name = function_name(concern, vpc)
    _, live = by_name(region)[name]
    next_one = "again" if concern == "interruption" else "dead"
    next_id, _ = by_name(region)[f"{name}-{next_one}"]
    _, dead = by_name(region)[f"{name}-dead"]
    assert live["RedrivePolicy"] == {"deadLetterTargetArn": f"{next_id}.Arn", "maxReceiveCount": 10}
    assert dead["MessageRetentionPeriod"] > live["MessageRetentionPeriod"]


HINTED = [(vpc, concern) for vpc, concern in PLACES if concern != "interruption"]
NOTICE_SECONDS = 120


@pytest.mark.parametrize(("vpc", "concern"), HINTED)
def test_a_hint_is_hidden_for_six_runs(region: Template, vpc: str, concern: str) -> None:
    _, live = by_name(region)[function_name(concern, vpc)]
    assert live["VisibilityTimeout"] >= 6 * region.function(concern, vpc)["Timeout"]


def test_after_three_runs_that_timed_out_a_notice_comes_again_before_ec2_takes_the_instance(
    region: Template,
) -> None:
    for concern in ("interruption", "routing"):
        function = region.function(concern)
        _, live = by_name(region)[function["FunctionName"]]
        assert live["VisibilityTimeout"] >= function["Timeout"]
        assert 3 * live["VisibilityTimeout"] + function["Timeout"] < NOTICE_SECONDS


def test_a_message_is_kept_until_every_receive_has_failed_and_longer_in_the_next_queue(
    region: Template,
) -> None:
    found = by_name(region)
    by_arn = {f"{id_}.Arn": each for id_, each in found.values()}
    for _, queue in found.values():
        redrive = queue.get("RedrivePolicy")
        if redrive is not None:
            worst = redrive["maxReceiveCount"] * queue["VisibilityTimeout"]
            assert worst < queue["MessageRetentionPeriod"]
            kept_there = by_arn[redrive["deadLetterTargetArn"]]["MessageRetentionPeriod"]
            assert kept_there > queue["MessageRetentionPeriod"]


def test_an_outage_of_a_quarter_of_an_hour_uses_up_no_queues_receives(region: Template) -> None:
    """Messages whose run raises come again as `SqsRedelivery` says, and as the queue says after that."""
    for _, queue in by_name(region).values():
        if "RedrivePolicy" in queue and not queue["QueueName"].endswith("-again"):
            waits = [*RETRY_SECONDS, *[queue["VisibilityTimeout"]] * 100][
                : queue["RedrivePolicy"]["maxReceiveCount"]
            ]
            again = any(each == f"{queue['QueueName']}-again" for each in by_name(region))
            assert sum(waits) >= (600 if again else 900)


def test_what_gives_a_second_chance_waits_longer_than_any_outage_that_mends_itself(
    region: Template,
) -> None:
    last = [each for name, (_, each) in by_name(region).items() if name.endswith("-again")]
    assert len(last) == 2
    for again in last:
        assert again["VisibilityTimeout"] * again["RedrivePolicy"]["maxReceiveCount"] >= 1800


def test_a_notice_that_failed_is_given_to_the_same_function_once_more_before_it_is_given_up(
    region: Template,
) -> None:
    _, again = by_name(region)["nodesmith-interruption-again"]
    dead_id, _ = by_name(region)["nodesmith-interruption-dead"]
    assert again["RedrivePolicy"] == {"deadLetterTargetArn": f"{dead_id}.Arn", "maxReceiveCount": 10}
    first, second = (
        mapping(region, f"nodesmith-{queue}") for queue in ("interruption", "interruption-again")
    )
    assert {**first, "EventSourceArn": ""} == {**second, "EventSourceArn": ""}


def test_every_queue_is_encrypted_and_has_one_policy_that_refuses_what_is_not_tls(region: Template) -> None:
    queues = region.of_type("SQS::Queue")
    policies = list(region.of_type("SQS::QueuePolicy").values())
    assert sorted(queue for policy in policies for queue in policy["Queues"]) == sorted(queues)
    for policy in policies:
        about = "*" if len(policy["Queues"]) > 1 else f"{policy['Queues'][0]}.Arn"
        assert {
            "Action": "sqs:*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Resource": about,
        } in policy["PolicyDocument"]["Statement"]
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())


@pytest.mark.parametrize(("vpc", "concern"), PLACES)
def test_a_queue_feeds_its_function_at_once_without_limit_and_failures_come_back_alone(
    region: Template, vpc: str, concern: str
) -> None:
    found = mapping(region, function_name(concern, vpc))
    assert region.resources[found["FunctionName"]]["Properties"] == region.function(concern, vpc)
    together = {"interruption": (100, 1)}.get(concern, (10, 0))  # its notices are planned together
    assert (found["BatchSize"], found.get("MaximumBatchingWindowInSeconds", 0)) == together
    assert found["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert "ScalingConfig" not in found


def test_a_function_takes_messages_from_its_own_queues_and_no_others(region: Template) -> None:
    every = set(by_name(region))
    for id_, mapped in region.of_type("Lambda::EventSourceMapping").items():
        function = region.resources[mapped["FunctionName"]]["Properties"]
        (poll,) = (
            each
            for each in region.statements(function["Role"].removesuffix(".Arn"))
            if "sqs:ReceiveMessage" in each["Action"]
        )
        polled = {each.rpartition(":")[2] for each in poll["Resource"]}
        assert mapped["EventSourceArn"] in {f"{by_name(region)[name][0]}.Arn" for name in polled}, id_
        assert polled <= every
        assert all(name.removesuffix("-again") == function["FunctionName"] for name in polled)


def test_schedules_wake_dispatch_and_routing_every_minute_and_the_catalogue_every_six_hours(
    region: Template,
) -> None:
    names = {f"{id_}.Arn": each["FunctionName"] for id_, each in region.of_type("Lambda::Function").items()}
    ticks = {
        names[each["Target"]["Arn"]]: (each["ScheduleExpression"], json.loads(each["Target"]["Input"]))
        for each in region.of_type("Scheduler::Schedule").values()
    }
    assert ticks == {
        "nodesmith-catalog": ("rate(360 minutes)", {"why": "tick"}),
        "nodesmith-dispatch": ("rate(1 minute)", {"why": "tick", "at": "<aws.scheduler.scheduled-time>"}),
        "nodesmith-routing": ("rate(1 minute)", {"why": "tick"}),
    }


def test_a_tick_is_never_repeated(region: Template) -> None:
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
    assert sorted(statement["Resource"]) == sorted(
        each["Target"]["Arn"] for each in region.of_type("Scheduler::Schedule").values()
    )


def test_one_set_of_rules_for_all_clusters_passes_notices_on_as_they_are(region: Template) -> None:
    queue = f"{by_name(region)['nodesmith-routing'][0]}.Arn"
    rules = [
        (rule["EventPattern"], target)
        for rule in region.of_type("Events::Rule").values()
        for target in rule["Targets"]
    ]
    assert {target["Arn"] for _, target in rules} == {queue}
    assert [target.keys() - {"Arn", "Id"} for _, target in rules] == [set()] * 3
    warnings = [
        "EC2 Spot Instance Interruption Warning",
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
        "Capacity Block Reservation Expiration Warning",
        "Capacity Block Expiration Warning",
        "EC2 Instance Rebalance Recommendation",
    ]
    told = {kind: pattern for pattern, _ in rules for kind in pattern["detail-type"]}
    assert told == {
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


def allowed_to_send(template: Template) -> list[dict[str, Any]]:
    """Give the statements of queues' own policies that let anybody in."""
    return [
        statement
        for policy in template.of_type("SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]


def test_only_rules_reach_a_queue_by_its_own_policy_and_only_the_queue_of_routing(
    region: Template,
) -> None:
    allowed = allowed_to_send(region)
    assert {each["Principal"]["Service"] for each in allowed} == {"events.amazonaws.com"}
    assert sorted(each["Condition"]["ArnEquals"]["aws:SourceArn"] for each in allowed) == sorted(
        f"{rule}.Arn" for rule in region.of_type("Events::Rule")
    )
    assert all(each["Condition"].keys() == {"ArnEquals"} for each in allowed)


def test_an_event_is_looked_up_at_once_and_twice_tried_before_it_is_given_up(region: Template) -> None:
    queues = by_name(region)
    fed = {
        each["EventSourceArn"]: {k: v for k, v in each.items() if k != "EventSourceArn"}
        for each in region.of_type("Lambda::EventSourceMapping").values()
    }
    live, again = (queues[f"nodesmith-routing{end}"] for end in ("", "-again"))
    for mapping in (fed[f"{queue[0]}.Arn"] for queue in (live, again)):
        assert region.resources[mapping["FunctionName"]]["Properties"] == region.function("routing")
        assert (mapping["BatchSize"], mapping.get("MaximumBatchingWindowInSeconds", 0)) == (10, 0)
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    dead = f"{queues['nodesmith-routing-dead'][0]}.Arn"
    assert live[1]["RedrivePolicy"]["deadLetterTargetArn"] == f"{again[0]}.Arn"
    assert again[1]["RedrivePolicy"]["deadLetterTargetArn"] == dead
