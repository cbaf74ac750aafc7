"""`nodesmith local` matches what the CDK deploys. The local side cannot import infra, hence this comparison."""

from __future__ import annotations

from aws_cdk import Aws

from infra import names
from infra.functions.concerns import CLUSTER_CONCERNS
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME, PATTERNS, QUEUE_NAME
from nodesmith_local.functions import deployment
from tests.infra.templates import Template


def test_the_local_functions_are_the_deployed_ones_except_catalog(plain: Template) -> None:
    deployed = {each["FunctionName"]: each for each in plain.of_type("Lambda::Function").values()}
    local = {f"nodesmith-{each.name}": each for each in deployment.FUNCTIONS}

    assert deployed.keys() - local.keys() == {"nodesmith-catalog"}
    for name, each in local.items():
        assert each.timeout_seconds == deployed[name]["Timeout"]
        assert each.recursive_loop == deployed[name].get("RecursiveLoop", "Terminate")
    assert [each.name for each in deployment.CONCERNS] == [each.name for each in CLUSTER_CONCERNS]


def test_local_events_are_retried_and_given_up_like_deployed_ones(plain: Template) -> None:
    dead = names.queue_arn("eu-west-1", DEAD_LETTER_QUEUE_NAME)
    for each in plain.of_type("Lambda::EventInvokeConfig").values():
        assert each["MaximumRetryAttempts"] == deployment.RETRIES
        assert each["MaximumEventAgeInSeconds"] == deployment.LONGEST_AGE_SECONDS
        destination = each["DestinationConfig"]["OnFailure"]["Destination"]
        assert destination.rpartition(":")[2] == dead.rpartition(":")[2] == DEAD_LETTER_QUEUE_NAME


def test_the_local_queue_behaves_like_the_deployed_one(
    plain: Template,
) -> None:
    queues = {each["QueueName"]: each for each in plain.of_type("SQS::Queue").values()}

    assert queues.keys() == {QUEUE_NAME, DEAD_LETTER_QUEUE_NAME}
    assert queues[QUEUE_NAME]["VisibilityTimeout"] == deployment.VISIBILITY_SECONDS
    assert queues[QUEUE_NAME]["RedrivePolicy"]["maxReceiveCount"] == deployment.RECEIVES
    assert plain.only("Lambda::EventSourceMapping")["BatchSize"] == deployment.BATCH_SIZE


def test_local_names_are_the_deployed_ones() -> None:
    def here(text: str) -> str:
        return text.replace(Aws.ACCOUNT_ID, deployment.ACCOUNT_ID).replace(Aws.PARTITION, "aws")

    assert deployment.TABLE_NAME == names.TABLE_NAME
    assert deployment.bucket_name("eu-west-1") == here(names.bucket_name("eu-west-1"))
    assert deployment.queue_arn("eu-west-1", QUEUE_NAME) == here(names.queue_arn("eu-west-1", QUEUE_NAME))
    assert deployment.function_arn("eu-west-1", "routing") == here(names.function_arn("eu-west-1", "routing"))


def test_notices_are_routed_by_the_same_rules(plain: Template) -> None:
    deployed = [rule["EventPattern"] for rule in plain.of_type("Events::Rule").values()]
    assert len(deployed) == len(PATTERNS)
    assert all(pattern in deployed for pattern in PATTERNS.values())
