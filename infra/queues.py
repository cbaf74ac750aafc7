"""The queue that wakes a concern, the one that gives a second chance, and the one that holds what had none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

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
CONCURRENCY = 2  # the least there is; commits are conditional, so more would only lose to each other


@dataclass(frozen=True, slots=True)
class Queues:
    """A concern's queue, its dead letter queue, and between them, where what is sent is news, one that tries again."""

    live: sqs.Queue
    dead: sqs.Queue
    again: sqs.Queue | None = None


def queues(
    scope: Construct,
    named: Callable[[str], str],
    concern: str,
    timeout_seconds: int,
    *,
    try_again: bool = False,
) -> Queues:
    """Make them; `named` gives the name of a concern's queue.

    Three hours outlast every retry of a hint, four days a long weekend.
    With `try_again` messages are notices of EC2: they come again quickly, and what failed is given once more, by a
    queue that feeds the same function, before it is given up.
    """
    visibility = VISIBILITY_TIMEOUTS * timeout_seconds
    if try_again:
        visibility = timeout_seconds + NOTICE_SLACK_SECONDS
    dead = _queue(scope, "DeadLetters", named(f"{concern}-dead"), days=4)
    again = None
    if try_again:
        again = _queue(
            scope,
            "Again",
            named(f"{concern}-again"),
            hours=4,
            visibility=AGAIN_VISIBILITY_SECONDS,
            dead_letters=dead,
        )
    live = _queue(
        scope,
        "Queue",
        named(concern),
        hours=3,
        visibility=visibility,
        dead_letters=again or dead,
    )
    return Queues(live, dead, again)


def feed(
    function: lambda_.Function, queue: sqs.Queue, batch_size: int = BATCH_SIZE, window_seconds: int = 0
) -> None:
    """Wake the function with the queue's messages, at once. It may give back a part of a batch, or raise for all."""
    source = sources.SqsEventSource(
        queue,
        batch_size=batch_size,
        max_batching_window=Duration.seconds(window_seconds),
        max_concurrency=CONCURRENCY,
        report_batch_item_failures=True,
    )
    function.add_event_source(source)


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
        enforce_ssl=True,
        retention_period=Duration.hours(24 * days + hours),
        visibility_timeout=Duration.seconds(visibility) if visibility else None,
        dead_letter_queue=(
            sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=RECEIVES) if dead_letters else None
        ),
    )
