"""Lambda's asynchronous invocations: it keeps each event of a function, and runs the function again where it fails.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from nodesmith_cli.local import lineage
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.failedevents import Condition, Failed, Request
from nodesmith_cli.local.invocable import Invocable

_RETRIED_AFTER = (timedelta(minutes=1), timedelta(minutes=2))
"""Lambda allows two retries at the most."""
_log = logging.getLogger(__name__)

Deliveries = Callable[[int], Iterable[tuple[float, float]]]
"""Says of an event, by its number, how often it comes: in how many seconds, and as which of those that are due."""


def once(number: int) -> Iterable[tuple[float, float]]:
    """Let each event come once, at once, in the order in which they were accepted."""
    return [(0.0, float(number))]


@dataclass(frozen=True, slots=True)
class InvokeConfig:
    """What Lambda is told of asynchronous invocations. What is left out is as Lambda has it.

    `concurrency` is how many run at once here: Lambda runs as many as there are. `on_failure` is the ARN of the queue
    that takes events which are given up, empty for none.
    """

    retries: int = len(_RETRIED_AFTER)
    longest_age_seconds: float = 21_600
    on_failure: str = ""
    concurrency: int = 1
    recursive_loop: lineage.RecursiveLoop = "Terminate"


@dataclass(slots=True)
class _Event:
    request: Request
    trace: str
    accepted_at: datetime
    due: datetime
    rank: float
    runs: int = 0


class AsyncInvocations:
    """The events of one function, given by the ARN of its alias.

    `poll` may be called by as many threads as the function may run at once. `bury` is given the ARN of the queue for
    events that are given up, and the message for it.
    """

    def __init__(
        self,
        arn: str,
        function: Invocable,
        clock: LocalClock,
        config: InvokeConfig = InvokeConfig(),
        bury: Callable[[str, str], object] = lambda arn, body: None,  # noqa: ARG005
        deliveries: Deliveries = once,
    ) -> None:
        self.arn, self.function, self.config = arn, function, config
        self._clock, self._bury, self._deliveries = clock, bury, deliveries
        self._lambda = ThreadPoolExecutor(config.concurrency, f"function-{function.concern}")
        self._waiting: list[_Event] = []
        self._changed = threading.Condition()
        self._accepted = 0
        self._closed = False
        self.invocations = 0
        self.failures = 0
        self.last_error = ""

    @property
    def concurrency(self) -> int:
        """How many invocations may be under way at once."""
        return self.config.concurrency

    @property
    def pending(self) -> int:
        """How many events are kept that nobody works on, those of later retries among them."""
        with self._changed:
            return len(self._waiting)

    def accept(self, payload: Any, trace: str = "") -> str:
        """Keep an event, which came with this trace header, and return the id of the request."""
        request, now = Request(str(uuid4()), self.arn, payload), self._clock.now()
        with self._changed:
            for seconds, rank in self._deliveries(self._accepted):
                due = now + timedelta(seconds=seconds)
                self._waiting.append(_Event(request, trace, now, due, rank))
            self._accepted += 1
            self._changed.notify_all()
        return request.id

    def poll(self, wait_seconds: float = 0) -> int:
        """Run the function for the next event that is due, within so many seconds of life. Returns how many were."""
        event = self._next(wait_seconds)
        if event is not None:
            self._work_off(event)
        return 0 if event is None else 1

    def close(self) -> None:
        """Let nobody wait for events any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self, wait_seconds: float) -> _Event | None:
        with self._changed:
            event = self._due()
            if event is None and wait_seconds and not self._closed:
                self._changed.wait(min(wait_seconds, self._seconds_until_due(wait_seconds)))
                event = self._due()
            return event

    def _due(self) -> _Event | None:
        now = self._clock.now()
        due = [each for each in self._waiting if each.due <= now]
        if not due or self._closed:
            return None
        event = min(due, key=lambda each: each.rank)
        self._waiting.remove(event)
        return event

    def _seconds_until_due(self, otherwise: float) -> float:
        """Return the seconds of life until the next event is due."""
        first = min((each.due for each in self._waiting), default=None)
        if first is None:
            return otherwise
        return max(0.0, self._clock.wall_seconds((first - self._clock.now()).total_seconds())) + 0.001

    def _work_off(self, event: _Event) -> None:
        if self._clock.now() - event.accepted_at > timedelta(seconds=self.config.longest_age_seconds):
            self._give_up(event, "EventAgeExceeded")
        elif self.is_looping(event.trace):
            self._give_up(event, "RecursiveInvocation")
        elif (error := self._run(event)) is not None:
            self._retry(event, error)

    def is_looping(self, trace: str) -> bool:
        """Return whether Lambda ends the chain of this trace header instead of running the function once more."""
        return self.config.recursive_loop == "Terminate" and lineage.is_over(trace, self.function.concern)

    def _run(self, event: _Event) -> BaseException | None:
        trace = lineage.invoked([event.trace], self.function.concern)
        event.runs += 1
        error = self._lambda.submit(self.function, event.request.payload, trace).exception()
        with self._changed:
            self.invocations += 1
            if error is not None:
                self.failures += 1
                self.last_error = f"{type(error).__name__}: {error}"
        return error

    def _retry(self, event: _Event, error: BaseException) -> None:
        _log.error("function %s failed", self.function.concern, exc_info=error)
        if event.runs > self.config.retries:
            self._give_up(event, "RetriesExhausted", error)
            return
        event.due = self._clock.now() + _RETRIED_AFTER[event.runs - 1]
        with self._changed:
            self._waiting.append(event)
            self._changed.notify_all()

    def _give_up(self, event: _Event, condition: Condition, error: BaseException | None = None) -> None:
        if self.config.on_failure:
            failed = Failed(event.request, condition, event.runs, error)
            self._bury(self.config.on_failure, failed.to_json(self._clock.now()))
