"""Triggers of the functions in a local system: Lambda's pollers and events, EventBridge Scheduler's schedules."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from nodesmith.model.apimachinery.times import format_time
from nodesmith.settings import (
    DEAD_LETTER_QUEUE_NAME,
    QUEUE_NAME,
    REGION_TICK_MINUTES,
    SCHEDULED,
)
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions.asynchronous import AsyncInvocations, InvokeConfig
from nodesmith_local.functions.deployment import (
    DISPATCH,
    FUNCTIONS,
    LONGEST_AGE_SECONDS,
    RETRIES,
    Deployment,
    function_arn,
    queue_arn,
)
from nodesmith_local.functions.eventsource import EventSource, QueueMapping
from nodesmith_local.functions.invocable import Feed
from nodesmith_local.functions.lambdas import Lambdas, send_to_dead_letters
from nodesmith_local.functions.loading import Function
from nodesmith_local.functions.queues import PolledQueues

LONGEST_POLL_SECONDS = 20
MINUTE_SECONDS = 60
_LONGEST_END_SECONDS = 60
"""Real seconds. An invocation takes longer on a busy machine, and fails if what it calls ends first."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A recurring invocation that starts at once, in seconds of the clock. `invoke` receives the scheduled time."""

    name: str
    invoke: Callable[[datetime], object]
    every_seconds: float


class Feeds:
    """Feeds by name and schedules, each in threads of its own from `start` until `stopping` is set."""

    def __init__(
        self,
        feeds: Mapping[str, Feed],
        schedules: Iterable[Schedule],
        clock: LocalClock,
        stopping: threading.Event,
    ) -> None:
        self.feeds = feeds
        self._schedules = tuple(schedules)
        self._clock = clock
        self._stopping = stopping
        self._threads: list[threading.Thread] = []

    def failures_by_function(self) -> list[str]:
        """Return the functions that failed, with the number of failures and the last error."""
        return [
            f"function {name} failed {feed.failures} times, last with {feed.last_error}"
            for name, feed in self.feeds.items()
            if feed.failures
        ]

    def start(self) -> None:
        """Start polling and invoking. Schedules invoke at once, as rate schedules do."""
        for name, feed in self.feeds.items():
            for _ in range(feed.concurrency):
                self._run(f"poll-{name}", partial(self._poll, feed))
        for schedule in self._schedules:
            self._run(f"schedule-{schedule.name}", partial(self._follow, schedule))

    def _run(self, name: str, job: Callable[[], None]) -> None:
        thread = threading.Thread(target=job, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Wait for work in progress after `stopping` is set; nothing new starts."""
        for feed in self.feeds.values():
            feed.close()
        for thread in self._threads:
            thread.join(_LONGEST_END_SECONDS)

    def _poll(self, feed: Feed) -> None:
        while not self._stopping.is_set():
            feed.poll(LONGEST_POLL_SECONDS)

    def _follow(self, schedule: Schedule) -> None:
        """Invoke on schedule, regardless of earlier results, as EventBridge Scheduler does."""
        time = self._clock.now()
        with ThreadPoolExecutor(1) as pool:
            while True:
                error = pool.submit(schedule.invoke, time).exception()
                if error is not None:
                    _log.error("function %s cannot be invoked", schedule.name, exc_info=error)
                time += timedelta(seconds=schedule.every_seconds)
                if self._clock.wait(self._stopping, max(0.0, (time - self._clock.now()).total_seconds())):
                    return


class Invoker(Feeds):
    """The feeds of a local deployment. `functions` are by concern; `lambdas` knows them afterwards.

    `deliveries` returns when the schedule of a function (a name) invokes it, in seconds after it is due.
    """

    def __init__(
        self,
        deployment: Deployment,
        functions: Mapping[str, Function],
        lambdas: Lambdas,
        clock: LocalClock,
        stopping: threading.Event,
        deliveries: Callable[[str], Iterable[float]] = lambda function: (0.0,),  # noqa: ARG005
    ) -> None:
        region = deployment.region
        events: dict[str, AsyncInvocations] = {}
        for spec in FUNCTIONS:
            if spec.name in functions:
                arn = function_arn(region, spec.name)
                config = InvokeConfig(
                    RETRIES,
                    LONGEST_AGE_SECONDS,
                    queue_arn(region, DEAD_LETTER_QUEUE_NAME),
                    recursive_loop=spec.recursive_loop,
                )
                invocations = AsyncInvocations(
                    arn, functions[spec.name], clock, config, partial(send_to_dead_letters, region)
                )
                events[spec.name] = invocations
                lambdas.know(invocations)
        feeds: dict[str, Feed] = {**events}
        if DISPATCH.name in functions:
            feeds["waiting"] = _from_waiting(deployment, functions[DISPATCH.name], clock)
        super().__init__(feeds, _schedules(events, deliveries), clock, stopping)


def _from_waiting(deployment: Deployment, dispatch: Function, clock: LocalClock) -> EventSource:
    return EventSource(
        PolledQueues(deployment.region),
        deployment.queue_url,
        dispatch,
        queue_arn(deployment.region, QUEUE_NAME),
        QueueMapping(),
        clock,
        DISPATCH.recursive_loop,
    )


def _schedules(
    events: Mapping[str, AsyncInvocations], deliveries: Callable[[str], Iterable[float]]
) -> Iterable[Schedule]:
    """Yield the schedules of the functions that run here."""
    for concern in SCHEDULED:
        if concern in events:
            tick = partial(_tick, events[concern], deliveries=deliveries, with_time=concern == DISPATCH.name)
            yield Schedule(concern, tick, REGION_TICK_MINUTES[concern] * MINUTE_SECONDS)


def _tick(
    invocations: AsyncInvocations,
    time: datetime,
    *,
    deliveries: Callable[[str], Iterable[float]],
    with_time: bool,
) -> None:
    """Invoke with the input that EventBridge Scheduler is configured to pass."""
    for seconds in deliveries(invocations.function.concern):
        payload = {"reason": "tick", **({"at": format_time(time)} if with_time else {})}
        invocations.accept(payload, after_seconds=seconds)
