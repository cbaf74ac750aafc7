"""Injected faults: messages and events that arrive twice and in any order, and processes that die."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol
from unittest.mock import patch

from moto.sqs.models import Message, Queue

from nodesmith_local.functions.asynchronous import Deliveries
from nodesmith_local.functions.invocable import Invocable

_TWIN_LATE_SECONDS = 10  # at most, after the first
_APART = 3  # at most, invocations from one fatal one to the next
_BUSY_SECONDS = 0.15  # real time: assumed duration of an invocation until one has been measured


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults to inject, all drawn from the seed.

    With `duplicate`, SQS delivers every message twice, and Lambda every asynchronous event, the second time some
    seconds later. With `shuffle`, they arrive in any order. `kills` is how many of the first invocations of each
    function end with their process killed.
    """

    seed: int = 0
    duplicate: bool = False
    shuffle: bool = False
    kills: int = 0


@contextmanager
def faulty_queues(faults: Faults, queues: Collection[str]) -> Iterator[None]:
    """Make the named queues deliver as the faults say until the end of the block."""
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


def faulty_deliveries(faults: Faults, concern: str) -> Deliveries:
    """Return deliveries of a function's asynchronous events as the faults say."""
    luck = random.Random(f"{faults.seed} {concern} events")  # noqa: S311 not for secrets

    def deliver(number: int) -> Iterator[tuple[float, float]]:
        twins = [0.0, luck.uniform(0, _TWIN_LATE_SECONDS)] if faults.duplicate else [0.0]
        for late in twins:
            yield late, luck.random() if faults.shuffle else float(number)

    return deliver


class _Danger:
    """The fatal invocations of a function for one seed: the next is number `next`, or a later one."""

    def __init__(self, faults: Faults, concern: str) -> None:
        self.luck = random.Random(f"{faults.seed} {concern}")  # noqa: S311 not for secrets
        self.left = faults.kills
        self.next = self.luck.randint(1, _APART)

    def passed(self) -> None:
        """Choose the next fatal invocation."""
        self.left -= 1
        self.next += self.luck.randint(1, _APART)


class Killable(Invocable, Protocol):
    """A function whose processes can be killed while busy; `kill` returns whether any was busy."""

    def kill(self) -> bool: ...


class Mortal:
    """A function that is killed during some of its invocations. `killed` counts them."""

    def __init__(self, function: Killable) -> None:
        self._function = function
        self._dangers: list[_Danger] = []
        self._takes_seconds = _BUSY_SECONDS
        self._numbers = itertools.count(1)
        self.killed = 0

    def endanger(self, *faults: Faults) -> None:
        """Choose from each seed which of the coming invocations are fatal, and when."""
        self._dangers, self._numbers = [_Danger(each, self.concern) for each in faults], itertools.count(1)

    @property
    def concern(self) -> str:
        return self._function.concern

    def __call__(self, event: Mapping[str, Any], trace: str = "") -> Any:
        """Invoke the function. If it ends before it is killed, the next invocation is in danger instead."""
        number = next(self._numbers)
        danger = next((each for each in self._dangers if each.left > 0 and number >= each.next), None)
        if danger is None:
            return self._invoked(event, trace)
        over = threading.Event()
        killer = threading.Timer(danger.luck.uniform(0, self._takes_seconds), self._kill, [danger, over])
        killer.start()
        try:
            return self._invoked(event, trace)
        finally:
            over.set()
            killer.cancel()
            killer.join()

    def _invoked(self, event: Mapping[str, Any], trace: str) -> Any:
        began = time.monotonic()
        answer = self._function(event, trace)
        self._takes_seconds = time.monotonic() - began  # adapts to the machine's current speed
        return answer

    def _kill(self, danger: _Danger, over: threading.Event) -> None:
        if not over.is_set() and self._function.kill():
            danger.passed()
            self.killed += 1
