"""All that wakes the functions of a local system: Lambda's event source mappings, EventBridge Scheduler's schedules."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from nodesmith.model.times import format_time
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud.queues import PolledQueues
from nodesmith_cli.local.deployment import DISPATCH, WOKEN_BY_QUEUES, Deployment, queue_arn
from nodesmith_cli.local.eventsource import EventSource, Mapped
from nodesmith_cli.local.functions import Function

LONGEST_POLL_SECONDS = 20
MINUTE_SECONDS = 60
_LONGEST_END_SECONDS = 60
"""Of life. On a busy machine an invocation takes its time, and would fail if what it calls ended before it."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Schedule:
    """An invocation at once and then again and again, in seconds of the clock. `invoke` is told for which time."""

    name: str
    invoke: Callable[[datetime], object]
    every_seconds: float


class EventSources:
    """Event sources and schedules, each in threads of their own from `start` until `stopping` is set."""

    def __init__(
        self,
        sources: Mapping[str, EventSource],
        schedules: Iterable[Schedule],
        clock: LocalClock,
        stopping: threading.Event,
    ) -> None:
        self.sources = sources
        self._schedules = tuple(schedules)
        self._clock = clock
        self._stopping = stopping
        self._threads: list[threading.Thread] = []

    def complaints(self) -> list[str]:
        """Say which functions failed, how often, and with what the last time."""
        return [
            f"function {concern} failed {source.failures} times, last with {source.last_error}"
            for concern, source in self.sources.items()
            if source.failures
        ]

    def start(self) -> None:
        """Begin to poll and to invoke. The first invocation comes at once, as a rate schedule's does."""
        for concern, source in self.sources.items():
            for _ in range(source.mapped.concurrency):
                self._run(f"poll-{concern}", partial(self._poll, source))
        for schedule in self._schedules:
            self._run(f"schedule-{schedule.name}", partial(self._follow, schedule))

    def _run(self, name: str, job: Callable[[], None]) -> None:
        thread = threading.Thread(target=job, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Wait for what is being worked on when `stopping` is set."""
        for thread in self._threads:
            thread.join(_LONGEST_END_SECONDS)

    def _poll(self, source: EventSource) -> None:
        while not self._stopping.is_set():
            source.poll(LONGEST_POLL_SECONDS)

    def _follow(self, schedule: Schedule) -> None:
        """Invoke, whatever became of the last time, as EventBridge Scheduler does."""
        at = self._clock.now()
        with ThreadPoolExecutor(1) as pool:
            while True:
                error = pool.submit(schedule.invoke, at).exception()
                if error is not None:
                    _log.error("function %s failed", schedule.name, exc_info=error)
                at += timedelta(seconds=schedule.every_seconds)
                if self._clock.wait(self._stopping, max(0.0, (at - self._clock.now()).total_seconds())):
                    return


class Invoker(EventSources):
    """Those of a local deployment. `functions` are by concern, dispatch among them."""

    def __init__(
        self,
        deployment: Deployment,
        functions: Mapping[str, Function],
        clock: LocalClock,
        stopping: threading.Event,
    ) -> None:
        urls = deployment.queue_urls
        declared = {each.name: each for each in WOKEN_BY_QUEUES}
        polled = PolledQueues(deployment.region)
        sources = {
            name: EventSource(
                polled,
                urls[name],
                functions[name],
                queue_arn(deployment.region, name),
                Mapped(each.batch_size, each.window_seconds),
                clock,
                each.recursive_loop,
            )
            for name, each in declared.items()
            if name in functions
        }
        dispatch = functions.get(DISPATCH)
        schedules = [Schedule(DISPATCH, partial(_invoke, dispatch), MINUTE_SECONDS)] if dispatch else []
        super().__init__(sources, schedules, clock, stopping)


def _invoke(function: Function, at: datetime) -> object:
    """Invoke with what EventBridge Scheduler is told to pass on."""
    return function({"why": "tick", "at": format_time(at)})
