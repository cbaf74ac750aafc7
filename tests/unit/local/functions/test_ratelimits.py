"""Token buckets: the burst of EC2's API calls, and the rate at which it refills."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.errors import Transient
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith_local.aws.ratelimits import TokenBucket
from nodesmith_local.aws.strict.dynamodblimits import PartitionWrites, write_units
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal
from nodesmith_local.functions.deployment import TABLE_NAME, deploy
from tests import builders
from tests.aws.account import REGION, client, strict_aws, unvalidated_client
from tests.clocks import StillClock


def test_a_full_bucket_takes_its_burst_and_no_more() -> None:
    bucket = TokenBucket(50, 5, StillClock())
    assert [bucket.take() for _ in range(51)] == [True] * 50 + [False]


def test_a_bucket_gains_its_refill_every_second_up_to_its_burst() -> None:
    clock = StillClock()
    bucket = TokenBucket(50, 5, clock)
    assert bucket.take(50)
    clock.time += timedelta(seconds=2)
    assert bucket.available() == 10
    clock.time += timedelta(hours=1)
    assert bucket.available() == 50


def test_a_bucket_with_too_few_tokens_gives_none() -> None:
    bucket = TokenBucket(10, 1, StillClock())
    assert not bucket.take(11)
    assert bucket.available() == 10


def test_a_fraction_of_a_token_is_kept_for_later() -> None:
    clock = StillClock()
    bucket = TokenBucket(1, 0.5, clock)
    assert bucket.take()
    clock.time += timedelta(seconds=1)
    assert not bucket.take()
    clock.time += timedelta(seconds=1)
    assert bucket.take()


def put(kib: int, partition: str = "cluster/east") -> AwsRequest:
    item = {"pk": {"S": partition}, "sk": {"S": "CLAIM#a"}, "doc": {"S": "x" * (kib * 1024 - 100)}}
    return AwsRequest("dynamodb", "PutItem", {"TableName": "table", "Item": item})


def test_a_write_takes_a_unit_for_each_kib_and_two_in_a_transaction() -> None:
    assert write_units(put(3)) == {("table", "cluster/east"): 3}
    written = AwsRequest(
        "dynamodb", "TransactWriteItems", {"TransactItems": [{"Put": put(3).parameters}] * 2}
    )
    assert write_units(written) == {("table", "cluster/east"): 12}
    requests = {"table": [{"PutRequest": {"Item": put(2).parameters["Item"]}}] * 25}
    assert write_units(AwsRequest("dynamodb", "BatchWriteItem", {"RequestItems": requests})) == {
        ("table", "cluster/east"): 50
    }
    assert not write_units(AwsRequest("dynamodb", "Query", {"TableName": "table"}))


def test_a_partition_takes_a_thousand_units_a_second_whatever_others_take() -> None:
    clock = StillClock()
    partitions = PartitionWrites(clock)
    for _ in range(10):
        partitions.check(put(100))
    with pytest.raises(Refusal, match="cluster/east takes no more writes now"):
        partitions.check(put(1))
    partitions.check(put(100, "cluster/west"))
    clock.time += timedelta(seconds=1)
    partitions.check(put(100))


def test_the_ledger_of_a_storm_is_told_to_write_later_and_then_does() -> None:
    clock = StillClock()
    with strict_aws() as strict:
        strict.partitions = PartitionWrites(clock)
        deploy(client, REGION)
        store = DynamoStore(unvalidated_client("dynamodb"), TABLE_NAME, "east", clock)

        def commit(version: int) -> None:
            claims: list[NodeClaim] = [
                builders.claim(
                    f"default-{version}-{n}", nominated=tuple(f"default/web-{i:05}" for i in range(200))
                )
                for n in range(90)
            ]
            store.commit(version, claims, "bought")

        commit(0)
        with pytest.raises(Transient, match="ProvisionedThroughputExceeded"):
            commit(1)
        clock.time += timedelta(seconds=1)
        commit(1)
        assert len(store.load().claims) == 180
