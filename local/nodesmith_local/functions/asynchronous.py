"""Lambda's asynchronous invocations: keep the events of a function and retry those that fail.

https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions import loopdetection
from nodesmith_local.functions.eventqueue import Event, EventQueue
from nodesmith_local.functions.failedevents import Condition, Failed, Request
from nodesmith_local.functions.invocable import Counted, Invocable, Throttled

_RETRIED_AFTER = (timedelta(minutes=1), timedelta(minutes=2))
"""Lambda allows at most two retries."""
_LONGEST_BACK_OFF_SECONDS = 300
"""Throttled events are retried after a second, then after twice as long each time up to this. They count as no run."""
_log = logging.getLogger(__name__)

Deliveries = Callable[[int], Iterable[tuple[float, float]]]
"""Maps an event's number to its deliveries, as pairs (delay in seconds, rank among the events that are due)."""


def once(number: int) -> Iterable[tuple[float, float]]:
    """Deliver each event once, without delay, in the order of acceptance."""
    return [(0.0, float(number))]


@dataclass(frozen=True, slots=True)
class InvokeConfig:
    """The settings of asynchronous invocation; the defaults are Lambda's.

    `concurrency` limits parallel runs here, where Lambda has no such limit. `on_failure` is the ARN of the queue for
    events that are given up, or empty for none.
    """

    retries: int = len(_RETRIED_AFTER)
    longest_age_seconds: float = 21_600
    on_failure: str = ""
    concurrency: int = 1
    recursive_loop: loopdetection.RecursiveLoop = "Terminate"


class AsyncInvocations(Counted):
    """The events of one function, identified by the ARN of its alias.

    Up to `concurrency` threads may call `poll`. `bury` takes the ARN of the queue for events that are given up, and the
    message for it.
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
        super().__init__()
        self.arn, self.function, self.config = arn, function, config
        self._clock, self._bury, self._deliveries = clock, bury, deliveries
        self._lambda = ThreadPoolExecutor(config.concurrency, f"function-{function.concern}")
        self._events = EventQueue(clock)
        self._accepted = itertools.count()

    @property
    def concurrency(self) -> int:
        """The maximum number of parallel invocations."""
        return self.config.concurrency

    @property
    def pending(self) -> int:
        """The number of events that wait, including those that wait for a later retry."""
        return len(self._events)

    def accept(self, payload: Any, trace: str = "", after_seconds: float = 0.0) -> str:
        """Store an event that arrives `after_seconds` with the trace header `trace`, and return the request's id."""
        request = Request(str(uuid4()), self.arn, payload)
        now = self._clock.now() + timedelta(seconds=after_seconds)
        for seconds, rank in self._deliveries(next(self._accepted)):
            self._events.put(Event(request, trace, now, now + timedelta(seconds=seconds), rank))
        return request.id

    def poll(self, wait_seconds: float = 0) -> int:
        """Run the function for the next due event; wait at most `wait_seconds` of real time.

        Return the number run, 0 or 1.
        """
        event = self._events.take(wait_seconds)
        if event is not None:
            self._work_off(event)
        return 0 if event is None else 1

    def close(self) -> None:
        """Stop running the function and release threads that wait for events."""
        self._events.close()

    def _work_off(self, event: Event) -> None:
        if self._clock.now() - event.accepted_at > timedelta(seconds=self.config.longest_age_seconds):
            self._give_up(event, "EventAgeExceeded")
        elif self.is_looping(event.trace):
            self._give_up(event, "RecursiveInvocation")
        elif (error := self._run(event)) is not None:
            self._retry(event, error)

    def is_looping(self, trace: str) -> bool:
        """Return whether Lambda ends the chain of this trace header instead of running the function again."""
        return self.config.recursive_loop == "Terminate" and loopdetection.is_over(
            trace, self.function.concern
        )

    def _run(self, event: Event) -> BaseException | None:
        trace = loopdetection.invoked([event.trace], self.function.concern)
        error = self._lambda.submit(self.function, event.request.payload, trace).exception()
        if not isinstance(error, Throttled):
            event.runs += 1
            self.count(error)
        return error

    def _retry(self, event: Event, error: BaseException) -> None:
        if isinstance(error, Throttled):
            seconds = min(2**event.throttles, _LONGEST_BACK_OFF_SECONDS)
            event.throttles += 1
            event.due = self._clock.now() + timedelta(seconds=seconds)
            self._events.put(event)
            return
        _log.error("function %s failed", self.function.concern, exc_info=error)
        if event.runs > self.config.retries:
            self._give_up(event, "RetriesExhausted", error)
            return
        event.due = self._clock.now() + _RETRIED_AFTER[event.runs - 1]
        self._events.put(event)

    def _give_up(self, event: Event, condition: Condition, error: BaseException | None = None) -> None:
        if self.config.on_failure:
            failed = Failed(event.request, condition, event.runs, error)
            self._bury(self.config.on_failure, failed.to_json(self._clock.now()))
