"""What may go wrong on purpose: messages that come twice and in any order, processes that die."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from moto.sqs.models import Message, Queue

from nodesmith_cli.local.clock import LocalClock

_TWIN_LATE_SECONDS = 10  # at the most, after the first


@dataclass(frozen=True, slots=True)
class Faults:
    """Which, all drawn from the seed.

    With `duplicate` SQS delivers every message twice, the second some seconds later; with `shuffle` in any order. A
    function's processes are killed every so many seconds of the clock on average, 0 for never.
    """

    seed: int = 0
    duplicate: bool = False
    shuffle: bool = False
    kill_every_seconds: float = 0


@contextmanager
def faulty_queues(faults: Faults, queues: Collection[str]) -> Iterator[None]:
    """Let these queues, by name, deliver as the faults say until the end of the block."""
    luck = random.Random(faults.seed)  # noqa: S311 not for secrets
    add = Queue.add_message

    def add_message(queue: Any, message: Message) -> None:
        if queue.name not in queues:
            add(queue, message)
            return
        add(queue, message)
        if faults.duplicate:
            twin = deepcopy(message)
            twin.delay(luck.randint(0, _TWIN_LATE_SECONDS))
            add(queue, twin)
        if faults.shuffle:
            with queue._messages_lock:
                luck.shuffle(queue._messages)

    with patch.object(Queue, "add_message", add_message):
        yield


def kill_at_random(
    faults: Faults, victims: Sequence[Callable[[], bool]], clock: LocalClock, stopping: threading.Event
) -> None:
    """Kill one of the victims at random moments until `stopping` is set."""
    luck = random.Random(faults.seed)  # noqa: S311 not for secrets
    while not clock.wait(stopping, luck.expovariate(1 / faults.kill_every_seconds)):
        luck.choice(victims)()
