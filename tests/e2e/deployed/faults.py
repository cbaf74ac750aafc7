"""What may go wrong on purpose: messages that come twice and in any order, processes that die."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from moto.sqs.models import Message, Queue

from tests.e2e.deployed.functions import DeployedFunction

_TWIN_LATE_SECONDS = 10  # at the most, after the first
_EARLY = 8  # invocations of a function among which the fatal ones are
_BUSY_SECONDS = 0.15  # of life: what a warm invocation takes at the most


@dataclass(frozen=True, slots=True)
class Faults:
    """Which, all drawn from the seed.

    With `duplicate` SQS delivers every message twice, the second some seconds later; with `shuffle` in any order.
    `kills` of each function's first invocations end, unless they are quicker, with its process killed.
    """

    seed: int = 0
    duplicate: bool = False
    shuffle: bool = False
    kills: int = 0


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


class Mortal:
    """A function that is killed in the middle of some of its invocations. `killed` counts them."""

    def __init__(self, function: DeployedFunction, faults: Faults) -> None:
        luck = random.Random(f"{faults.seed} {function.concern}")  # noqa: S311 not for secrets
        fatal = luck.sample(range(1, _EARLY + 1), faults.kills)
        self._function = function
        self._after_seconds = {number: luck.uniform(0, _BUSY_SECONDS) for number in fatal}
        self._numbers = itertools.count(1)
        self.killed = 0

    @property
    def concern(self) -> str:
        return self._function.concern

    def __call__(self, event: Mapping[str, Any]) -> Any:
        seconds = self._after_seconds.get(next(self._numbers))
        if seconds is None:
            return self._function(event)
        timer = threading.Timer(seconds, self._kill)
        timer.start()
        try:
            return self._function(event)
        finally:
            timer.cancel()

    def _kill(self) -> None:
        self.killed += self._function.kill()
