"""The queue that wakes a concern, the one that gives a second chance, and the one that holds what had none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import names

VISIBILITY_TIMEOUTS = (
    6  # of the function: Lambda's advice, so that a message being worked on is not given out again
)
NOTICE_SLACK_SECONDS = 10
"""How long a notice stays hidden beyond the function's time-out: as long as Lambda may take to start the function.

A function that times out or crashes cannot show its messages again itself, and EC2 gives two minutes: less than six
time-outs. A notice that is given out twice does no harm.
"""
AGAIN_VISIBILITY_SECONDS = 180
"""In a queue that gives a second chance: ten receives outlast an outage of half an hour."""
RECEIVES = 10
"""Before a message is given up. Functions have failed messages shown again after 5 s at first, then later and later."""
BATCH_SIZE = 10


@dataclass(frozen=True, slots=True)
class Queues:
    """A concern's queue, its dead letter queue, and between them, where what is sent is news, one that tries again."""

    name: str
    live: sqs.Queue
    dead: sqs.Queue
    again: sqs.Queue | None = None

    @property
    def feeding(self) -> list[sqs.Queue]:
        """Those whose messages the function takes."""
        return [queue for queue in (self.live, self.again) if queue is not None]

    @property
    def names(self) -> list[str]:
        """The names of these."""
        return [self.name] if self.again is None else [self.name, f"{self.name}-again"]

    @property
    def every(self) -> list[sqs.Queue]:
        """All of them."""
        return [*self.feeding, self.dead]


def queues(
    scope: Construct, concern: str, timeout_seconds: int, vpc_name: str = "", *, try_again: bool = False
) -> Queues:
    """Make a concern's queues.

    Three hours outlast every retry of a hint, four days a long weekend.
    With `try_again` messages are notices of EC2: they come again quickly, and what failed is given once more, by a
    queue that feeds the same function, before it is given up.
    """
    name = names.function_name(concern, vpc_name)
    visibility = VISIBILITY_TIMEOUTS * timeout_seconds
    if try_again:
        visibility = timeout_seconds + NOTICE_SLACK_SECONDS
    dead, again = _queue(scope, "DeadLetters", f"{name}-dead", days=4), None
    if try_again:
        again = _queue(
            scope,
            "Again",
            f"{name}-again",
            hours=4,
            visibility=AGAIN_VISIBILITY_SECONDS,
            dead_letters=dead,
        )
    live = _queue(scope, "Queue", name, hours=3, visibility=visibility, dead_letters=again or dead)
    return Queues(name, live, dead, again)


def feed(
    function: lambda_.Function, made: Queues, batch_size: int = BATCH_SIZE, window_seconds: int = 0
) -> None:
    """Wake the function with the queues' messages, at once. It may give back a part of a batch, or raise for all.

    Nothing limits how many run at a time: Lambda asks an idle queue less often then, and commits are conditional.
    """
    for queue in made.feeding:
        lambda_.EventSourceMapping(
            function,
            f"From{queue.node.id}",
            target=function,
            event_source_arn=queue.queue_arn,
            batch_size=batch_size,
            max_batching_window=Duration.seconds(window_seconds) if window_seconds else None,
            report_batch_item_failures=True,
        )


def refuse_plain_http(scope: Construct, those: Iterable[sqs.Queue]) -> None:
    """Let nobody reach these queues but by TLS: one policy for all, in which * is the queue that is asked.

    A queue has one policy, so this is none for a queue that lets others in.
    """
    document = iam.PolicyDocument(statements=[plain_http_denial("*")])
    urls = [queue.queue_url for queue in those]
    sqs.CfnQueuePolicy(scope, "OnlyTls", queues=urls, policy_document=document)


def plain_http_denial(resource: str) -> iam.PolicyStatement:
    """Write the statement that refuses whatever does not come by TLS."""
    return iam.PolicyStatement(
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["sqs:*"],
        resources=[resource],
        conditions={"Bool": {"aws:SecureTransport": "false"}},
    )


def _queue(
    scope: Construct,
    id_: str,
    name: str,
    *,
    days: int = 0,
    hours: int = 0,
    visibility: int | None = None,
    dead_letters: sqs.Queue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        id_,
        queue_name=name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        retention_period=Duration.hours(24 * days + hours),
        visibility_timeout=Duration.seconds(visibility) if visibility else None,
        dead_letter_queue=(
            sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=RECEIVES) if dead_letters else None
        ),
    )
