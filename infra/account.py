"""The account stack: what all clusters of a region share. Table, bucket, and the function that keeps the catalogue."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Duration, Environment, RemovalPolicy, Stack, Tags, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra import alarms, names
from infra.concerns import CATALOG_MEMORY_MIB, CATALOG_TICK_MINUTES, CATALOG_TIMEOUT_SECONDS
from infra.functions import Code, FunctionSpec, function, layer
from infra.permissions import catalog_grants
from infra.ticks import Ticker

VERSION_DAYS = 7  # replaced snapshots and catalogues, for looking back at what a decision saw
DECISION_DAYS = 90


class AccountStack(Stack):
    """Shared by the clusters of one region. What it holds outlives it: table and bucket are retained."""

    def __init__(self, scope: Construct, region: str, code: Code, alarm_topic_arn: str = "") -> None:
        super().__init__(
            scope,
            f"nodesmith-{region}",
            env=Environment(region=region),
            description="nodesmith: what the clusters of this region share",
        )
        Tags.of(self).add(names.TAG, "shared")
        _table(self)
        _bucket(self, region)
        self._catalog(region, code, alarm_topic_arn)

    def _catalog(self, region: str, code: Code, alarm_topic_arn: str) -> None:
        spec = FunctionSpec(
            name=names.CATALOG_FUNCTION,
            concern="catalog",
            timeout_seconds=CATALOG_TIMEOUT_SECONDS,
            memory_mib=CATALOG_MEMORY_MIB,
            environment={"BUCKET_NAME": names.bucket_name(region)},
            grants=tuple(catalog_grants(region)),
        )
        scope = Construct(self, "Catalog")
        made, _ = function(scope, spec, code, [layer(self, code, name) for name in ("core", "vendor")])
        ticker = Ticker(self, names.CATALOG_FUNCTION, "lambda:InvokeFunction", (made.function_arn,))
        ticker.every(CATALOG_TICK_MINUTES, "catalog", made.function_arn, {"why": "tick"})
        rejected = alarms.own_metric("Rejected", "", "catalog")
        alarms.watch_function(scope, spec.name, rejected, CATALOG_TICK_MINUTES, alarm_topic_arn)


def _table(scope: Construct) -> dynamodb.Table:
    """Make the ledger: encrypted with DynamoDB's own key, for what it holds (names, ids, times) is no secret."""
    return dynamodb.Table(
        scope,
        "Table",
        table_name=names.TABLE_NAME,
        partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute="ttl",
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=True,
        removal_policy=RemovalPolicy.RETAIN,
    )


def _bucket(scope: Construct, region: str) -> s3.Bucket:
    """Make the bucket, with S3-managed keys: snapshots hold neither Secrets nor environment values (the forwarder drops
    them), and a key of our own would cost more a month than everything else here does while idle.
    """
    bucket = s3.Bucket(
        scope,
        "Bucket",
        bucket_name=names.bucket_name(region),
        encryption=s3.BucketEncryption.S3_MANAGED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        versioned=True,
        lifecycle_rules=_lifecycle_rules(),
        removal_policy=RemovalPolicy.RETAIN,
    )
    why = "Only nodesmith's roles reach the bucket; who wants a record of reads has CloudTrail's data events"
    Validations.of(bucket).acknowledge(Acknowledgment(id="AwsSolutions-S1", reason=why))
    return bucket


def _lifecycle_rules() -> list[s3.LifecycleRule]:
    """Let what is replaced go within a week, and decisions after a quarter. A snapshot that old has no cluster left."""
    return [
        s3.LifecycleRule(
            id="replaced",
            noncurrent_version_expiration=Duration.days(VERSION_DAYS),
            abort_incomplete_multipart_upload_after=Duration.days(1),
            expired_object_delete_marker=True,
        ),
        s3.LifecycleRule(id="decisions", prefix="clusters/", expiration=Duration.days(DECISION_DAYS)),
    ]
