"""What is kept: the table and the bucket."""

from __future__ import annotations

from nodesmith.settings import decision_key, snapshot_key
from tests.infra.templates import Template


def test_the_table_survives_mistakes(account: Template) -> None:
    table = account.only("DynamoDB::Table")
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["DeletionProtectionEnabled"] is True
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]] == [
        ("pk", "HASH"),
        ("sk", "RANGE"),
    ]
    assert {each["AttributeType"] for each in table["AttributeDefinitions"]} == {"S"}


def test_the_table_knows_whose_an_instance_is_and_tells_no_more_of_it(account: Template) -> None:
    indexes = account.only("DynamoDB::Table")["GlobalSecondaryIndexes"]
    assert {each["IndexName"]: each["KeySchema"] for each in indexes} == {
        name: [{"AttributeName": name, "KeyType": "HASH"}] for name in ("instance", "reservation")
    }
    assert [each["Projection"] for each in indexes] == [{"ProjectionType": "KEYS_ONLY"}] * 2


def test_table_and_bucket_outlive_the_stack(account: Template) -> None:
    for kind in ("AWS::DynamoDB::Table", "AWS::S3::Bucket"):
        (found,) = (each for each in account.resources.values() if each["Type"] == kind)
        assert (found["DeletionPolicy"], found["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_the_bucket_is_private_encrypted_and_versioned(account: Template) -> None:
    bucket = account.only("S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}


def test_the_bucket_refuses_what_is_not_tls(account: Template) -> None:
    statements = account.only("S3::BucketPolicy")["PolicyDocument"]["Statement"]
    denied = [
        each["Condition"] for each in statements if each["Effect"] == "Deny" and each["Action"] == "s3:*"
    ]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied
    assert {each["Effect"] for each in statements} == {"Deny"}


def test_replaced_snapshots_go_in_a_week_and_decisions_in_a_quarter(account: Template) -> None:
    rules = {each["Id"]: each for each in account.only("S3::Bucket")["LifecycleConfiguration"]["Rules"]}
    assert rules["replaced"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}
    assert "Prefix" not in rules["replaced"]
    assert rules["decisions"]["ExpirationInDays"] == 90
    for key in (decision_key("alpha", "d-1"), snapshot_key("alpha")):
        assert key.startswith(rules["decisions"]["Prefix"])
    assert {each["Status"] for each in rules.values()} == {"Enabled"}
