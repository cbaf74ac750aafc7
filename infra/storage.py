"""The resources that outlive the stack: the ledger's table, and the bucket of snapshots and decisions."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra import names
from nodesmith.model.costs.allocations import ALLOCATIONS, DAYS, HOURS, MOVES
from nodesmith.settings import INDEXES

VERSION_DAYS = 7  # replaced snapshots and catalogues, to look up what a decision saw
DECISION_DAYS = 90
ALLOCATION_HOUR_DAYS, ALLOCATION_DAYS = 35, 400
"""How long hourly cost allocation is kept, and that of days and moves. Monthly cost allocation never expires."""


def make_table(scope: Construct) -> dynamodb.Table:
    """Make the ledger. DynamoDB's own key encrypts it: its content (names, ids, times) is not secret."""
    table = dynamodb.Table(
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
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    )
    for index in INDEXES:
        table.add_global_secondary_index(
            index_name=index,
            partition_key=dynamodb.Attribute(name=index, type=dynamodb.AttributeType.STRING),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
    return table


def make_bucket(scope: Construct, region: str) -> s3.Bucket:
    """Make the bucket, encrypted with S3-managed keys.

    Snapshots hold neither Secrets nor environment values, because the forwarder drops them. A key of our own would cost
    more a month than everything else here does while idle.
    """
    own = names.has_own_namespace(region)
    bucket = s3.Bucket(
        scope,
        "Bucket",
        bucket_name=None if own else names.bucket_name(region),
        bucket_name_prefix=names.BUCKET_PREFIX if own else None,  # S3 adds the rest of names.bucket_name
        bucket_namespace=s3.BucketNamespace.ACCOUNT_REGIONAL if own else None,
        encryption=s3.BucketEncryption.S3_MANAGED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        versioned=True,
        lifecycle_rules=_lifecycle_rules(),
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    )
    reason = "Only nodesmith's roles reach the bucket; CloudTrail data events can record reads"
    Validations.of(bucket).acknowledge(Acknowledgment(id="AwsSolutions-S1", reason=reason))
    return bucket


def _lifecycle_rules() -> list[s3.LifecycleRule]:
    """Expire replaced versions after a week, decisions after a quarter, and cost allocation except for months.

    Snapshots as old as expired decisions belong to no cluster.
    """
    return [
        s3.LifecycleRule(
            id="replaced",
            noncurrent_version_expiration=Duration.days(VERSION_DAYS),
            abort_incomplete_multipart_upload_after=Duration.days(1),
            expired_object_delete_marker=True,
        ),
        s3.LifecycleRule(id="decisions", prefix="clusters/", expiration=Duration.days(DECISION_DAYS)),
        *(
            s3.LifecycleRule(
                id=f"allocations-{kind}",
                prefix=f"{ALLOCATIONS}/{kind}/",
                expiration=Duration.days(ALLOCATION_HOUR_DAYS if kind == HOURS else ALLOCATION_DAYS),
            )
            for kind in (HOURS, DAYS, MOVES)
        ),
    ]
