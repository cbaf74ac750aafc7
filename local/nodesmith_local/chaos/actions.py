"""Faults that do something by themselves: send what cannot be read, and interrupt spot instances."""

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
    {"messages": [{"cluster": "no-such-cluster", "why": "<script>", "attempt": -1}]},
    {"detail-type": "x" * 10_000},
)
"""Events that no function can read, or that name what does not exist."""
MESSAGES = ("", "[]", "{", "null", '{"concern": "none", "vpc": "", "payload": {}}', "[" * 5000)
"""Messages of the queue that cannot be read. SQS refuses an empty one, so it is sent as a space."""


def poison(lambdas: Lambdas, client: Client, queue_url: str, region: str) -> Callable[[Fault], int]:
    """Return what sends each function an event that cannot be read, a different one each time, and the queue one."""
    sent = 0

    def act(fault: Fault) -> int:
        nonlocal sent
        wanted = fault.callers - {FORWARDER}
        names = [each.name for each in FUNCTIONS if not wanted or each.name in wanted]
        for name in names:
            lambdas.accept(function_arn(region, name), POISON[sent % len(POISON)])
        through_queue = not wanted or Concern.DISPATCH in wanted
        if through_queue:
            body = MESSAGES[sent % len(MESSAGES)] or " "
            client("sqs").send_message(QueueUrl=queue_url, MessageBody=body)
        sent += 1
        return len(names) + through_queue

    return act


def interrupt(client: Client, region: str, now: Callable[[], datetime]) -> Callable[[Fault], int]:
    """Return what interrupts all running spot instances that it has not interrupted yet, with the usual warning."""
    done: set[str] = set()

    def act(fault: Fault) -> int:
        del fault
        running = list(ec2_backends[ACCOUNT_ID][region].all_instances())
        due = {i.id for i in running if i.lifecycle == SPOT and i.state == "running"} - done
        for instance in sorted(due):
            announce_interruption(client("events"), region, instance, now())
        done.update(due)
        return len(due)

    return act
