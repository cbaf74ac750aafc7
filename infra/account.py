"""The account stack: what all clusters of a region share.

Table, bucket, the function that keeps the catalogue, and the one set of rules by which EC2's and AWS Health's events
reach the cluster whose instance they are about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Acknowledgment, Duration, Environment, RemovalPolicy, Stack, Tags, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import alarms, names
from infra.concerns import (
    CATALOG_MEMORY_MIB,
    CATALOG_TICK_MINUTES,
    CATALOG_TIMEOUT_SECONDS,
    ROUTING_MEMORY_MIB,
    ROUTING_TICK_MINUTES,
    ROUTING_TIMEOUT_SECONDS,
)
from infra.functions import Code, FunctionSpec, function, layer
from infra.permissions import catalog_grants, routing_grants
from infra.queues import feed, queues
from infra.ticks import Ticker
from nodesmith.settings import INDEXES, PATTERNS

VERSION_DAYS = 7  # replaced snapshots and catalogues, for looking back at what a decision saw
DECISION_DAYS = 90


class AccountStack(Stack):
    """Shared by the clusters of one region. What it holds outlives it: table and bucket are retained.

    `routing_concurrency` is kept free for the events of instances; None shares the account's.
    """

    def __init__(
        self,
        scope: Construct,
        region: str,
        code: Code,
        alarm_topic_arn: str = "",
        routing_concurrency: int | None = None,
    ) -> None:
        super().__init__(
            scope,
            f"nodesmith-{region}",
            env=Environment(region=region),
            description="nodesmith: what the clusters of this region share",
        )
        Tags.of(self).add(names.TAG, "shared")
        self._code, self._topic = code, alarm_topic_arn
        self._layers = [layer(self, code, name) for name in ("core", "vendor")]
        catalog = self._catalog(region)
        routing = self._routing(region, routing_concurrency)
        kept = self._keep(region)
        self._tick(catalog, routing, kept)

    def _keep(self, region: str) -> dynamodb.Table:
        """Make bucket and table once all else is there but the ticks, so that a first deployment can be undone.

        CloudFormation deletes what it has made when it rolls that back. It could not delete a table that is protected
        from deletion, nor a bucket into which a tick has had the catalogue written.
        """
        others = [child for child in self.node.children if isinstance(child, Construct)]
        bucket, table = _bucket(self, region), _table(self)
        table.node.add_dependency(*others, bucket)
        return table

    def _catalog(self, region: str) -> lambda_.Function:
        spec = FunctionSpec(
            name=names.shared_name("catalog"),
            concern="catalog",
            timeout_seconds=CATALOG_TIMEOUT_SECONDS,
            memory_mib=CATALOG_MEMORY_MIB,
            environment={"BUCKET_NAME": names.bucket_name(region)},
            grants=tuple(catalog_grants(region)),
        )
        scope = Construct(self, "Catalog")
        made, _ = function(scope, spec, self._code, self._layers)
        rejected = alarms.own_metric("Rejected", "", "catalog")
        alarms.watch_function(scope, spec.name, rejected, CATALOG_TICK_MINUTES, self._topic)
        return made

    def _routing(self, region: str, reserved_concurrency: int | None) -> lambda_.Function:
        """EC2 does not say whose an instance is: a function looks it up, and passes its news on to that cluster."""
        scope, name = Construct(self, "Routing"), names.shared_name("routing")
        made_queues = queues(scope, names.shared_name, "routing", ROUTING_TIMEOUT_SECONDS, try_again=True)
        spec = FunctionSpec(
            name=name,
            concern="routing",
            timeout_seconds=ROUTING_TIMEOUT_SECONDS,
            memory_mib=ROUTING_MEMORY_MIB,
            environment={
                "TABLE_NAME": names.TABLE_NAME,
                "ROUTING_QUEUE_URL": made_queues.live.queue_url,
            },
            grants=tuple(routing_grants(region)),
            reserved_concurrency=reserved_concurrency,
        )
        made, _ = function(scope, spec, self._code, self._layers)
        for queue in filter(None, (made_queues.live, made_queues.again)):
            feed(made, queue)
        for rule, pattern in PATTERNS.items():
            _listen(scope, rule, pattern, made_queues.live)
        rejected = alarms.own_metric("Rejected", "", "routing")
        alarms.watch_function(scope, name, rejected, ROUTING_TICK_MINUTES, self._topic)
        alarms.watch_queue(scope, name, names.shared_name("routing-dead"), self._topic)
        alarms.watch_waiting(scope, names.shared_name("routing-again"), self._topic)
        return made

    def _tick(self, catalog: lambda_.Function, routing: lambda_.Function, kept: dynamodb.Table) -> None:
        arns = (catalog.function_arn, routing.function_arn)
        ticker = Ticker(self, names.shared_name("ticks"), "lambda:InvokeFunction", arns, after=kept)
        ticker.every(CATALOG_TICK_MINUTES, "catalog", catalog.function_arn, {"why": "tick"})
        ticker.every(ROUTING_TICK_MINUTES, "routing", routing.function_arn, {"why": "tick"})


def _listen(scope: Construct, name: str, pattern: Mapping[str, Any], queue: sqs.Queue) -> None:
    """Pass events on as they are: the deadline is in them."""
    events.Rule(
        scope,
        name,
        description=f"what instances of this region may be lost by: {name}",
        event_pattern=events.EventPattern(
            source=pattern["source"], detail_type=pattern["detail-type"], detail=pattern.get("detail")
        ),
        targets=[targets.SqsQueue(queue)],
    )


def _table(scope: Construct) -> dynamodb.Table:
    """Make the ledger: encrypted with DynamoDB's own key, for what it holds (names, ids, times) is no secret."""
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


def _bucket(scope: Construct, region: str) -> s3.Bucket:
    """Make the bucket, with S3-managed keys: snapshots hold neither Secrets nor environment values (the forwarder drops
    them), and a key of our own would cost more a month than everything else here does while idle.
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
