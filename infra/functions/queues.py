"""The queue of delayed invocations, and the dead-letter queue."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import names
from infra.functions.concerns import DISPATCH_TIMEOUT_SECONDS
from nodesmith.settings import DEAD_LETTER_QUEUE_NAME, QUEUE_NAME

VISIBILITY_SECONDS = 6 * DISPATCH_TIMEOUT_SECONDS
"""Six times the timeout, as Lambda recommends, so that a message in progress is not delivered again."""
RECEIVES = 10
"""How often a message is received before it moves to the dead-letter queue."""
BATCH_SIZE = 10


def queues(scope: Construct) -> sqs.Queue:
    """Make both queues, and return that of delayed invocations.

    Four hours outlast every delay and retry; four days outlast a long weekend.
    """
    dead = _queue(scope, "DeadLetters", DEAD_LETTER_QUEUE_NAME, Duration.days(4))
    waiting = _queue(
        scope,
        "Waiting",
        QUEUE_NAME,
        Duration.hours(4),
        visibility_timeout=Duration.seconds(VISIBILITY_SECONDS),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=RECEIVES),
    )
    _refuse_plain_http(scope, waiting, dead)
    return waiting


def feed(scope: Construct, region: str, dispatch: lambda_.Alias, waiting: sqs.Queue) -> None:
    """Deliver messages to dispatch when their delay ends. Dispatch may report part of a batch as failed.

    No limit on concurrency is set: Lambda polls an idle queue just as often with one.
    """
    mapping = lambda_.CfnEventSourceMapping(
        scope,
        "FromWaiting",
        function_name=names.function_arn(region, "dispatch"),
        event_source_arn=waiting.queue_arn,
        batch_size=BATCH_SIZE,
        function_response_types=["ReportBatchItemFailures"],
    )
    mapping.node.add_dependency(dispatch)


def _refuse_plain_http(scope: Construct, *refused_queues: sqs.Queue) -> None:
    """Deny access to these queues without TLS. One policy covers them all: in it, * is the queue that is accessed."""
    denial = iam.PolicyStatement(
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["sqs:*"],
        resources=["*"],
        conditions={"Bool": {"aws:SecureTransport": "false"}},
    )
    urls = [queue.queue_url for queue in refused_queues]
    document = iam.PolicyDocument(statements=[denial])
    sqs.CfnQueuePolicy(scope, "OnlyTls", queues=urls, policy_document=document)


def _queue(
    scope: Construct,
    id_: str,
    name: str,
    retention: Duration,
    *,
    visibility_timeout: Duration | None = None,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        id_,
        queue_name=name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        retention_period=retention,
        visibility_timeout=visibility_timeout,
        dead_letter_queue=dead_letter_queue,
    )
