"""All that wakes the functions of a local system: Lambda's event source mappings, EventBridge Scheduler's ticks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud.queues import PolledQueues
from nodesmith_cli.local.deployment import CONCERNS, WOKEN_BY_QUEUES, Deployment, queue_arn
from nodesmith_cli.local.eventsource import EventSource, Mapped
from nodesmith_cli.local.functions import Function

LONGEST_POLL_SECONDS = 20
_LONGEST_END_SECONDS = 60
"""Of life. On a busy machine an invocation takes its time, and would fail if what it calls ended before it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A message that is sent at once and then again and again, in seconds of the clock."""

    name: str
    queue_url: str
    body: str
    every_seconds: float


class EventSources:
    """Event sources and ticks, each in threads of their own from `start` until `stopping` is set."""

    def __init__(
        self,
        sqs: Any,
        sources: Mapping[str, EventSource],
        ticks: Iterable[Tick],
        clock: LocalClock,
        stopping: threading.Event,
    ) -> None:
        self.sources = sources
        self._sqs = sqs
        self._ticks = tuple(ticks)
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
        """Begin to poll and to tick. The first tick comes at once, as a rate schedule's does."""
        for concern, source in self.sources.items():
            for _ in range(source.mapped.concurrency):
                self._run(f"poll-{concern}", partial(self._poll, source))
        for tick in self._ticks:
            self._run(f"tick-{tick.name}", partial(self._tick, tick))

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

    def _tick(self, tick: Tick) -> None:
        while True:
            self._sqs.send_message(QueueUrl=tick.queue_url, MessageBody=tick.body)
            if self._clock.wait(self._stopping, tick.every_seconds):
                return


class Invoker(EventSources):
    """Those of a local deployment."""

    def __init__(
        self,
        sqs: Any,
        deployment: Deployment,
        functions: Mapping[str, Function],
        clock: LocalClock,
        stopping: threading.Event,
    ) -> None:
        urls = deployment.queue_urls
        body = json.dumps({"cluster": deployment.cluster, "why": "tick"}, separators=(",", ":"))
        arns = {concern: queue_arn(deployment.region, deployment.cluster, concern) for concern in functions}
        declared = {each.name: each for each in WOKEN_BY_QUEUES}
        mapped = {name: Mapped(each.batch_size, each.window_seconds) for name, each in declared.items()}
        polled = PolledQueues(deployment.region)
        sources = {
            c: EventSource(polled, urls[c], each, arns[c], mapped[c], clock, declared[c].recursive_loop)
            for c, each in functions.items()
        }
        ticks = [Tick(each.name, urls[each.name], body, each.tick_minutes * 60) for each in CONCERNS]
        super().__init__(sqs, sources, ticks, clock, stopping)
