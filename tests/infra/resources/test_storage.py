"""The table and the bucket."""

from __future__ import annotations

import pytest
from aws_cdk import App, Aws, Environment, Stack, assertions

from infra import names
from infra.storage import make_bucket
from nodesmith.keys import decision_key, snapshot_key
from nodesmith.model.costs.allocations import BOOKED, DAYS, HOURS, MONTHS, MOVES, allocations_prefix
from tests.infra.deployment import REGION
from tests.infra.templates import PSEUDO, Template, resolve


def test_the_table_survives_mistakes(region: Template) -> None:
    table = region.only("DynamoDB::Table")
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["DeletionProtectionEnabled"] is True
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]] == [
        ("pk", "HASH"),
        ("sk", "RANGE"),
    ]
    assert {each["AttributeType"] for each in table["AttributeDefinitions"]} == {"S"}


def test_the_tables_indexes_hold_only_keys(region: Template) -> None:
    indexes = region.only("DynamoDB::Table")["GlobalSecondaryIndexes"]
    assert {each["IndexName"]: each["KeySchema"] for each in indexes} == {
        name: [{"AttributeName": name, "KeyType": "HASH"}] for name in ("instance", "reservation")
    }
    assert [each["Projection"] for each in indexes] == [{"ProjectionType": "KEYS_ONLY"}] * 2


def test_table_and_bucket_outlive_the_stack_but_not_a_failed_first_deployment(region: Template) -> None:
    for kind in ("AWS::DynamoDB::Table", "AWS::S3::Bucket"):
        (found,) = (each for each in region.resources.values() if each["Type"] == kind)
        assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_the_protected_table_is_created_after_everything_but_the_ticks(region: Template) -> None:
    (table,) = (id_ for id_, each in region.resources.items() if each["Type"] == "AWS::DynamoDB::Table")
    before = _before(region, table)
    later = {each["Type"] for id_, each in region.resources.items() if id_ not in {*before, table}}
    assert later <= {
        "AWS::Scheduler::Schedule",
        "AWS::Scheduler::ScheduleGroup",
        "AWS::IAM::Role",
    }
    schedules = [id_ for id_, each in region.resources.items() if each["Type"] == "AWS::Scheduler::Schedule"]
    assert len(schedules) == 3
    for schedule in schedules:
        assert table in _before(region, schedule)


def _before(template: Template, id_: str) -> set[str]:
    """Return all resources that CloudFormation creates before a resource because of DependsOn."""
    found: set[str] = set()
    open_ = [id_]
    while open_:
        for other in template.resources[open_.pop()].get("DependsOn", []):
            if other not in found:
                found.add(other)
                open_.append(other)
    return found


def test_the_buckets_name_is_in_the_accounts_own_namespace(region: Template) -> None:
    bucket = region.only("S3::Bucket")
    assert (bucket["BucketNamePrefix"], bucket["BucketNamespace"]) == ("nodesmith", "account-regional")
    assert "BucketName" not in bucket
    assert resolve_name(names.bucket_name(REGION)) == f"nodesmith-111122223333-{REGION}-an"


@pytest.mark.parametrize("region", ["me-central-1", "me-south-1"])
def test_the_bucket_is_named_in_full_where_s3_has_no_account_namespaces(region: str) -> None:
    stack = Stack(App(), "region", env=Environment(region=region))
    make_bucket(stack, region)
    (bucket,) = assertions.Template.from_stack(stack).find_resources("AWS::S3::Bucket").values()
    assert resolve(bucket["Properties"]["BucketName"]) == f"nodesmith-111122223333-{region}"
    assert resolve_name(names.bucket_name(region)) == f"nodesmith-111122223333-{region}"


def resolve_name(name: str) -> str:
    return name.replace(Aws.ACCOUNT_ID, PSEUDO["AWS::AccountId"])


def test_the_bucket_is_private_encrypted_and_versioned(region: Template) -> None:
    bucket = region.only("S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}


def test_the_bucket_requires_tls(region: Template) -> None:
    statements = region.only("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    denied = [
        each["Condition"] for each in statements if each["Effect"] == "Deny" and each["Action"] == "s3:*"
    ]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied
    assert {each["Effect"] for each in statements} == {"Deny"}


def test_replaced_snapshots_expire_in_a_week_and_decisions_in_a_quarter(region: Template) -> None:
    rules = {each["Id"]: each for each in region.only("S3::Bucket")["LifecycleConfiguration"]["Rules"]}
    assert rules["replaced"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}
    assert "Prefix" not in rules["replaced"]
    assert rules["decisions"]["ExpirationInDays"] == 90
    for key in (decision_key("alpha", "d-1"), snapshot_key("alpha")):
        assert key.startswith(rules["decisions"]["Prefix"])
    assert {each["Status"] for each in rules.values()} == {"Enabled"}


def test_cost_allocation_of_hours_days_and_moves_expires_and_that_of_months_is_kept(region: Template) -> None:
    rules = region.only("S3::Bucket")["LifecycleConfiguration"]["Rules"]
    days = {each["Prefix"]: each["ExpirationInDays"] for each in rules if "ExpirationInDays" in each}
    kept = {
        kind: next(
            (n for prefix, n in days.items() if allocations_prefix(kind, "alpha").startswith(prefix)), 0
        )
        for kind in (HOURS, DAYS, MONTHS, MOVES, BOOKED)
    }
    assert kept == {HOURS: 35, DAYS: 400, MONTHS: 0, MOVES: 400, BOOKED: 0}
