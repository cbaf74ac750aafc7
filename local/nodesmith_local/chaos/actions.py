"""Faults that act on their own: they send unreadable events, and interrupt spot instances."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from moto.ec2 import ec2_backends

from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.functions import Concern
from nodesmith_local.aws.instances.eventbus import announce_interruption
from nodesmith_local.chaos.faults import FORWARDER, Fault
from nodesmith_local.functions.deployment import ACCOUNT_ID, FUNCTIONS, Client, function_arn
from nodesmith_local.functions.lambdas import Lambdas

POISON: tuple[Any, ...] = (
    "",
    [],
    None,
    {"detail": 7},
    {"messages": [{"cluster": 7}, "x", None]},
    {"messages": [{"cluster": "no-such-cluster", "reason": "<script>", "attempt": -1}]},
    {"detail-type": "x" * 10_000},
)
"""Events that no function can read, or that name what does not exist."""
MESSAGES = ("", "[]", "{", "null", '{"concern": "none", "vpc": "", "payload": {}}', "[" * 5000)
"""Messages of the queue that cannot be read. SQS refuses an empty one, so it is sent as a space."""


def send_unreadable_events(
    lambdas: Lambdas, client: Client, queue_url: str, region: str
) -> Callable[[Fault], int]:
    """Return an action that sends unreadable events to each function and to the queue, different ones each time."""
    sent = 0

    def act(fault: Fault) -> int:
        nonlocal sent
        function_callers = fault.callers - {FORWARDER}
        names = [
            function.name
            for function in FUNCTIONS
            if not function_callers or function.name in function_callers
        ]
        for name in names:
            lambdas.accept(function_arn(region, name), POISON[sent % len(POISON)])
        through_queue = not function_callers or Concern.DISPATCH in function_callers
        if through_queue:
            body = MESSAGES[sent % len(MESSAGES)] or " "
            client("sqs").send_message(QueueUrl=queue_url, MessageBody=body)
        sent += 1
        return len(names) + through_queue

    return act


def interrupt(client: Client, region: str, now: Callable[[], datetime]) -> Callable[[Fault], int]:
    """Return an action that interrupts all running spot instances not yet interrupted by it, with the usual warning."""
    interrupted: set[str] = set()

    def act(fault: Fault) -> int:
        del fault
        running = list(ec2_backends[ACCOUNT_ID][region].all_instances())
        due = {i.id for i in running if i.lifecycle == SPOT and i.state == "running"} - interrupted
        for instance in sorted(due):
            announce_interruption(client("events"), region, instance, now())
        interrupted.update(due)
        return len(due)

    return act
