"""Partial failures inside successful AWS responses, and how the adapters handle them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.composition.parts import system_time
from nodesmith.decisions.launch import launch_plan
from nodesmith.errors import Conflict, Transient
from nodesmith.model.ec2.launches import Launched, LaunchOutcome, LaunchRequest, NoCapacity, OfferingKey
from nodesmith.model.ledger.learned import Backoff
from nodesmith_local.aws.strict import answers
from tests import builders
from tests.aws.account import NODECLASS, REGION, SETTINGS, Account, account, client
from tests.fakes.cloud import CLUSTER
from tests.objects.launching import CLAIM, NOW, options

TABLE = "ledger"
UNTIL = Backoff(NOW + timedelta(minutes=3), 1, "InsufficientInstanceCapacity")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled")
    with account() as furnished:
        yield furnished


@pytest.fixture
def store(world: Account) -> DynamoStore:
    assert world.strict.answers.next("CreateTable") is None
    dynamodb: Any = boto3.client(
        "dynamodb", region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none"
    )
    keys = {"pk": "HASH", "sk": "RANGE"}
    dynamodb.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    return DynamoStore(dynamodb, TABLE, "express", lambda: datetime(2026, 11, 21, 8, tzinfo=UTC))


def pools(count: int) -> dict[OfferingKey, Backoff]:
    return {OfferingKey("spot", f"m5.{n}xlarge", "us-east-1a"): UNTIL for n in range(count)}


def test_unprocessed_writes_of_a_batch_are_written_by_the_next_calls(
    world: Account, store: DynamoStore
) -> None:
    world.strict.answers.change("BatchWriteItem", answers.unprocessed_writes(20), times=2)
    store.save_unavailable(pools(30))
    assert set(store.load().unavailable) == set(pools(30))


def test_repeatedly_unprocessed_writes_are_transient(world: Account, store: DynamoStore) -> None:
    world.strict.answers.change("BatchWriteItem", answers.unprocessed_writes(25), times=20)
    with pytest.raises(Transient, match="BatchWriteItem left 3 items unwritten"):
        store.save_unavailable(pools(3))


def test_unprocessed_keys_of_a_batch_are_read_by_the_next_calls(world: Account, store: DynamoStore) -> None:
    claims = [builders.claim(f"default-{n}") for n in range(5)]
    store.commit(0, claims, "d1")
    world.strict.answers.change("BatchGetItem", answers.unprocessed_keys(3), times=2)
    names = {claim.name for claim in claims}
    assert set(store.existing_claims([*names, "nobody"])) == names


def test_repeatedly_unprocessed_keys_are_transient(world: Account, store: DynamoStore) -> None:
    world.strict.answers.change("BatchGetItem", answers.unprocessed_keys(100), times=20)
    with pytest.raises(Transient, match="BatchGetItem left 1 items unread"):
        store.existing_claims(["default-1"])


@pytest.mark.parametrize(
    ("reasons", "raised"),
    [
        (("ConditionalCheckFailed", "None"), Conflict),
        (("None", "TransactionConflict"), Conflict),
        (("None", "ThrottlingError"), Transient),
        (("ProvisionedThroughputExceeded", "None"), Transient),
        (("None", "ValidationError"), Transient),
    ],
)
def test_the_cancellation_reasons_of_a_transaction_determine_the_error(
    world: Account, store: DynamoStore, reasons: tuple[str, ...], raised: type[Exception]
) -> None:
    world.strict.answers.change("TransactWriteItems", answers.cancelled(*reasons))
    with pytest.raises(raised):
        store.commit(0, [builders.claim("default-1")], "d1")
    assert store.load().version == 0


def test_a_commit_whose_response_is_lost_is_transient_and_found_by_the_next_read(
    world: Account, store: DynamoStore
) -> None:
    # botocore retries a 5xx with the same ClientRequestToken, and moto then repeats its response.
    world.strict.answers.change("TransactWriteItems", answers.lost_answer("ThrottlingException"), times=10)
    with pytest.raises((Transient, Conflict)):
        store.commit(0, [builders.claim("default-1")], "d1")
    assert [claim.name for claim in store.load().claims] == ["default-1"]


def launch(cloud: AwsCloud, *types: str) -> tuple[LaunchRequest, LaunchOutcome]:
    status = cloud.resolve(NODECLASS, CLUSTER, NOW)
    request, templates = launch_plan(CLAIM, options(types), NODECLASS, status, CLUSTER)
    cloud.ensure_templates(templates)
    (outcome,) = cloud.launch([request])
    return request, outcome


def test_pool_errors_next_to_an_instance_do_not_hide_the_instance(world: Account) -> None:
    world.seam.pools.refuse("spot:m5.large", "InsufficientInstanceCapacity")
    _, outcome = launch(AwsCloud(client, SETTINGS, system_time), "m5.large", "m5.2xlarge")
    assert isinstance(outcome, Launched)
    assert outcome.instance.instance_type == "m5.2xlarge"
    assert {short.offering.instance_type for short in outcome.shortfalls} == {"m5.large"}
    assert {short.code for short in outcome.shortfalls} == {"InsufficientInstanceCapacity"}


def test_a_response_with_neither_instance_nor_error_means_no_capacity_in_all_pools(world: Account) -> None:
    world.strict.answers.change("CreateFleet", answers.fleet_answer())
    request, outcome = launch(AwsCloud(client, SETTINGS, system_time), "m5.large")
    assert isinstance(outcome, NoCapacity)
    assert {short.offering for short in outcome.shortfalls} == set(request.offerings())


@pytest.mark.parametrize(
    "code", ["RequestLimitExceeded", "Server.InternalError", "Client.InvalidFleetConfiguration"]
)
def test_errors_of_each_shape_can_be_simulated_inside_a_response(world: Account, code: str) -> None:
    world.seam.pools.refuse("spot:*", code)
    ec2 = client("ec2")
    _, _ = launch(AwsCloud(client, SETTINGS, system_time), "m5.large")
    name = ec2.describe_launch_templates()["LaunchTemplates"][0]["LaunchTemplateName"]
    subnet = next(iter(world.network.subnets.values()))
    answer: dict[str, Any] = ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "1"},
                "Overrides": [{"InstanceType": "m5.large", "SubnetId": subnet}],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
    )
    assert answer["FleetId"].startswith("fleet-")
    assert [error["ErrorCode"] for error in answer["Errors"]] == [code]
    assert answer["Errors"][0]["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] == "m5.large"
    assert answer["Instances"] == []
