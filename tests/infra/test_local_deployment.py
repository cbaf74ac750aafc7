"""What `nodesmith local` sets up is what the CDK deploys: the local side cannot import infra, hence this comparison."""

from __future__ import annotations

from aws_cdk import Aws

from infra import names, queues
from infra.concerns import CLUSTER_CONCERNS, ROUTING_TIMEOUT_SECONDS
from nodesmith.settings import PATTERNS, function_name
from nodesmith_cli.local import deployment
from tests.infra.templates import Template


def test_the_local_concerns_time_out_as_the_deployed_ones_do() -> None:
    deployed = [(c.name, c.timeout_seconds) for c in CLUSTER_CONCERNS]

    assert [(c.name, c.timeout_seconds) for c in deployment.CONCERNS] == deployed


def test_the_local_queues_hide_redeliver_and_bury_messages_as_the_deployed_ones_do(
    plain: Template,
) -> None:
    assert deployment.RECEIVES == queues.RECEIVES
    assert deployment.BATCH_SIZE == queues.BATCH_SIZE
    for local in deployment.WOKEN_BY_QUEUES:
        (deployed,) = (
            each["VisibilityTimeout"]
            for each in plain.of_type("SQS::Queue").values()
            if each["QueueName"] == names.function_name(local.name)
        )
        assert local.visibility_seconds == deployed


def test_the_local_queues_hand_messages_over_as_the_deployed_ones_do() -> None:
    assert [(c.batch_size, c.window_seconds) for c in deployment.CONCERNS] == [
        (c.batch_size, c.window_seconds) for c in CLUSTER_CONCERNS
    ]


def test_the_local_functions_may_be_in_loops_where_the_deployed_ones_may(
    plain: Template,
) -> None:
    concerns = [*(c.name for c in CLUSTER_CONCERNS), "routing"]
    deployed = {concern: plain.function(concern)["RecursiveLoop"] for concern in concerns}

    assert {c.name: c.recursive_loop for c in deployment.WOKEN_BY_QUEUES} == deployed


def test_local_names_are_the_deployed_ones() -> None:
    assert deployment.TABLE_NAME == names.TABLE_NAME
    deployed = names.bucket_name("eu-west-1").replace(Aws.ACCOUNT_ID, deployment.ACCOUNT_ID)
    assert deployment.bucket_name("eu-west-1") == deployed
    queue = names.queue_arn("eu-west-1", "lifecycle").replace(Aws.ACCOUNT_ID, deployment.ACCOUNT_ID)
    assert deployment.queue_arn("eu-west-1", "lifecycle") == queue.replace(Aws.PARTITION, "aws")
    assert function_name(deployment.DISPATCH) == "nodesmith-dispatch"


def test_notices_are_routed_by_the_same_rules_and_in_the_same_way(plain: Template) -> None:
    deployed = [rule["EventPattern"] for rule in plain.of_type("Events::Rule").values()]
    assert len(deployed) == len(PATTERNS)
    assert all(pattern in deployed for pattern in PATTERNS.values())
    local = deployment.ROUTING
    assert local.timeout_seconds == ROUTING_TIMEOUT_SECONDS
    assert (local.batch_size, local.window_seconds) == (queues.BATCH_SIZE, 0)
