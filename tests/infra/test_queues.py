"""What wakes whom: queues, dead letters, ticks and EC2's events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.concerns import CLUSTER_CONCERNS
from nodesmith.adapters.redelivery import RETRY_SECONDS
from nodesmith.model.events import Hint, parse_hint
from tests.infra.templates import Template

ALL = [concern.name for concern in CLUSTER_CONCERNS]


def by_name(template: Template) -> dict[str, tuple[str, dict[str, Any]]]:
    return {each["QueueName"]: (id_, each) for id_, each in template.of_type("SQS::Queue").items()}


def mapping(template: Template, concern: str) -> dict[str, Any]:
    """Give the event source mapping that feeds a concern's function."""
    queue = by_name(template)[f"nodesmith-alpha-{concern}"][0]
    (found,) = (
        each
        for each in template.of_type("Lambda::EventSourceMapping").values()
        if each["EventSourceArn"] == f"{queue}.Arn"
    )
    return found


@pytest.mark.parametrize("concern", ALL)
def test_a_concern_has_a_queue_and_dead_letters_that_outlive_it(alpha: Template, concern: str) -> None:
    _, live = by_name(alpha)[f"nodesmith-alpha-{concern}"]
    next_one = "again" if concern == "interruption" else "dead"
    next_id, _ = by_name(alpha)[f"nodesmith-alpha-{concern}-{next_one}"]
    _, dead = by_name(alpha)[f"nodesmith-alpha-{concern}-dead"]
    assert live["RedrivePolicy"] == {"deadLetterTargetArn": f"{next_id}.Arn", "maxReceiveCount": 10}
    assert dead["MessageRetentionPeriod"] > live["MessageRetentionPeriod"]


HINTED = [concern for concern in ALL if concern != "interruption"]
NOTICE_SECONDS = 120


@pytest.mark.parametrize("concern", HINTED)
def test_a_hint_is_hidden_for_six_runs(alpha: Template, concern: str) -> None:
    _, live = by_name(alpha)[f"nodesmith-alpha-{concern}"]
    assert live["VisibilityTimeout"] >= 6 * alpha.function(concern)["Timeout"]


def test_after_three_runs_that_timed_out_a_notice_comes_again_before_ec2_takes_the_instance(
    alpha: Template, account: Template
) -> None:
    for template, concern in ((alpha, "interruption"), (account, "routing")):
        function = template.function(concern)
        _, live = by_name(template)[function["FunctionName"]]
        assert live["VisibilityTimeout"] >= function["Timeout"]
        assert 3 * live["VisibilityTimeout"] + function["Timeout"] < NOTICE_SECONDS


def test_a_message_is_kept_until_every_receive_has_failed_and_longer_in_the_next_queue(
    alpha: Template, account: Template
) -> None:
    for template in (alpha, account):
        found = by_name(template)
        by_arn = {f"{id_}.Arn": each for id_, each in found.values()}
        for _, queue in found.values():
            redrive = queue.get("RedrivePolicy")
            if redrive is not None:
                worst = redrive["maxReceiveCount"] * queue["VisibilityTimeout"]
                assert worst < queue["MessageRetentionPeriod"]
                kept_there = by_arn[redrive["deadLetterTargetArn"]]["MessageRetentionPeriod"]
                assert kept_there > queue["MessageRetentionPeriod"]


def test_an_outage_of_a_quarter_of_an_hour_uses_up_no_queues_receives(alpha: Template) -> None:
    """Messages whose run raises come again as `SqsRedelivery` says, and as the queue says after that."""
    for _, queue in by_name(alpha).values():
        if "RedrivePolicy" in queue and not queue["QueueName"].endswith("-again"):
            waits = [*RETRY_SECONDS, *[queue["VisibilityTimeout"]] * 100][
                : queue["RedrivePolicy"]["maxReceiveCount"]
            ]
            again = any(each == f"{queue['QueueName']}-again" for each in by_name(alpha))
            assert sum(waits) >= (600 if again else 900)


def test_what_gives_a_second_chance_waits_longer_than_any_outage_that_mends_itself(
    alpha: Template, account: Template
) -> None:
    for template in (alpha, account):
        (again,) = (each for name, (_, each) in by_name(template).items() if name.endswith("-again"))
        assert again["VisibilityTimeout"] * again["RedrivePolicy"]["maxReceiveCount"] >= 1800


def test_a_notice_that_failed_is_given_to_the_same_function_once_more_before_it_is_given_up(
    alpha: Template,
) -> None:
    _, again = by_name(alpha)["nodesmith-alpha-interruption-again"]
    dead_id, _ = by_name(alpha)["nodesmith-alpha-interruption-dead"]
    assert again["RedrivePolicy"] == {"deadLetterTargetArn": f"{dead_id}.Arn", "maxReceiveCount": 10}
    first, second = (mapping(alpha, queue) for queue in ("interruption", "interruption-again"))
    assert {**first, "EventSourceArn": ""} == {**second, "EventSourceArn": ""}


def test_every_queue_is_encrypted_and_refuses_what_is_not_tls(alpha: Template) -> None:
    policies = {each["Queues"][0]: each for each in alpha.of_type("SQS::QueuePolicy").values()}
    for id_, queue in alpha.of_type("SQS::Queue").items():
        assert queue["SqsManagedSseEnabled"] is True
        assert {
            "Action": "sqs:*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Resource": f"{id_}.Arn",
        } in policies[id_]["PolicyDocument"]["Statement"]


@pytest.mark.parametrize("concern", ALL)
def test_a_queue_feeds_its_function_at_once_and_failures_come_back_alone(
    alpha: Template, concern: str
) -> None:
    found = mapping(alpha, concern)
    assert alpha.resources[found["FunctionName"]]["Properties"] == alpha.function(concern)
    together = {"interruption": (100, 1)}.get(concern, (10, 0))  # its notices are planned together
    assert (found["BatchSize"], found.get("MaximumBatchingWindowInSeconds", 0)) == together
    assert found["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert found["ScalingConfig"] == {"MaximumConcurrency": 2}


def test_every_concern_looks_from_time_to_time(alpha: Template) -> None:
    queues = {f"{id_}.Arn": name for name, (id_, _) in by_name(alpha).items()}
    ticks = {
        queues[each["Target"]["Arn"]]: each["ScheduleExpression"]
        for each in alpha.of_type("Scheduler::Schedule").values()
    }
    assert ticks == {
        "nodesmith-alpha-provisioning": "rate(1 minute)",
        "nodesmith-alpha-interruption": "rate(1 minute)",
        "nodesmith-alpha-disruption": "rate(1 minute)",
        "nodesmith-alpha-lifecycle": "rate(1 minute)",
        "nodesmith-alpha-termination": "rate(1 minute)",
        "nodesmith-alpha-readiness": "rate(5 minutes)",
        "nodesmith-alpha-observation": "rate(1 minute)",
        "nodesmith-alpha-repair": "rate(1 minute)",
        "nodesmith-alpha-garbagecollection": "rate(2 minutes)",
    }


def test_a_tick_is_a_hint_for_its_own_cluster_and_is_never_repeated(alpha: Template, beta: Template) -> None:
    for cluster, template in (("alpha", alpha), ("beta", beta)):
        for each in template.of_type("Scheduler::Schedule").values():
            assert parse_hint(each["Target"]["Input"], cluster) == Hint(cluster, "tick")
            assert each["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 0


def test_ticks_come_only_from_the_stacks_own_schedules(alpha: Template) -> None:
    (tick,) = {each["Target"]["RoleArn"] for each in alpha.of_type("Scheduler::Schedule").values()}
    role = alpha.resources[tick.removesuffix(".Arn")]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "111122223333"},
        "ArnEquals": {
            "aws:SourceArn": "arn:aws:scheduler:eu-west-1:111122223333:schedule-group/nodesmith-alpha-ticks"
        },
    }
    assert alpha.only("Scheduler::ScheduleGroup")["Name"] == "nodesmith-alpha-ticks"


def test_one_set_of_rules_for_all_clusters_passes_notices_on_as_they_are(account: Template) -> None:
    queue = f"{by_name(account)['nodesmith-routing'][0]}.Arn"
    rules = [
        (rule["EventPattern"], target)
        for rule in account.of_type("Events::Rule").values()
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


def test_no_cluster_has_rules_of_its_own(alpha: Template, beta: Template) -> None:
    for template in (alpha, beta):
        assert not [each for each in template.resources.values() if each["Type"] == "AWS::Events::Rule"]


def allowed_to_send(template: Template) -> list[dict[str, Any]]:
    """Give the statements of queues' own policies that let anybody in."""
    return [
        statement
        for policy in template.of_type("SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]


def test_only_roles_that_may_reach_a_clusters_queues_and_only_the_rules_the_queue_of_routing(
    alpha: Template, account: Template
) -> None:
    assert allowed_to_send(alpha) == []
    allowed = allowed_to_send(account)
    assert {each["Principal"]["Service"] for each in allowed} == {"events.amazonaws.com"}
    assert sorted(each["Condition"]["ArnEquals"]["aws:SourceArn"] for each in allowed) == sorted(
        f"{rule}.Arn" for rule in account.of_type("Events::Rule")
    )
    assert all(each["Condition"].keys() == {"ArnEquals"} for each in allowed)


def test_an_event_is_looked_up_at_once_and_twice_tried_before_it_is_given_up(account: Template) -> None:
    queues = by_name(account)
    fed = {
        each["EventSourceArn"]: {k: v for k, v in each.items() if k != "EventSourceArn"}
        for each in account.of_type("Lambda::EventSourceMapping").values()
    }
    live, again = (queues[f"nodesmith-routing{end}"] for end in ("", "-again"))
    assert fed.keys() == {f"{live[0]}.Arn", f"{again[0]}.Arn"}
    for mapping in fed.values():
        assert account.resources[mapping["FunctionName"]]["Properties"] == account.function("routing")
        assert (mapping["BatchSize"], mapping.get("MaximumBatchingWindowInSeconds", 0)) == (10, 0)
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    dead = f"{queues['nodesmith-routing-dead'][0]}.Arn"
    assert live[1]["RedrivePolicy"]["deadLetterTargetArn"] == f"{again[0]}.Arn"
    assert again[1]["RedrivePolicy"]["deadLetterTargetArn"] == dead


def test_the_catalogue_is_looked_at_every_hour_and_routing_kept_warm(account: Template) -> None:
    ticks = {
        each["Target"]["Arn"]: (each["ScheduleExpression"], json.loads(each["Target"]["Input"]))
        for each in account.of_type("Scheduler::Schedule").values()
    }
    names = {id_: each["FunctionName"] for id_, each in account.of_type("Lambda::Function").items()}
    assert {names[arn.removesuffix(".Arn")]: each for arn, each in ticks.items()} == {
        "nodesmith-catalog": ("rate(60 minutes)", {"why": "tick"}),
        "nodesmith-routing": ("rate(5 minutes)", {"why": "tick"}),
    }
