"""A region that clusters share, as a discrete-event simulation: Lambda's concurrency, one delayed queue, EC2's buckets.

Every run is a thread of its own, and one of them runs at a time. Where a run waits for a call the time of the
simulation goes on; what it computes takes as long there as the processor took for it here.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests import builders
from tests.world import Killed

START_SECONDS = (0.6, 1.0)
"""From an invocation that finds no idle environment to its handler, see `tests.benchmarks.coldstart`."""
KEPT_SECONDS = 600
"""How long Lambda is taken to keep an idle environment."""
INVOKE_SECONDS = 0.03
"""From an event that Lambda has accepted to a function that runs."""
LONGEST_BACKOFF_SECONDS = 300
"""Lambda tries a throttled event again after 1, 2, 4 ... seconds (Lambda Developer Guide, invocation-async)."""
REINVOKED_SECONDS = 60
"""Until Lambda runs an event again whose process died."""
POLL_SECONDS = 0.1
"""From a message that is due to dispatch, which is handed ten at a time."""
BATCH = 10
DISPATCH_SECONDS = 0.02
"""What dispatch takes for each invocation."""

Work = Callable[[], None]


@dataclass(slots=True)
class Process:
    """Something that takes time. `end` is when it is killed, `share` how long a second of the processor takes it."""

    work: Work
    end: float
    share: float = 1.0
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    since: float = 0.0
    """the processor time of its thread when it went on"""


class Kernel:
    """The time of the simulation, and who goes on when."""

    def __init__(self) -> None:
        self._at = 0.0
        self._due: list[tuple[float, int, Process]] = []
        self._count = 0
        self._current: Process | None = None
        self._back = threading.Semaphore(0)
        self._failed: list[BaseException] = []

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return self._at + self._computed()

    def now(self) -> datetime:
        """Return the time of day."""
        return builders.NOW + timedelta(seconds=self.seconds)

    def left(self) -> float:
        """Return how long the process that asks may still run."""
        assert self._current is not None
        return self._current.end - self.seconds

    def after(self, seconds: float, work: Work, *, lasting: float = float("inf"), share: float = 1.0) -> None:
        """Let a process begin after a while, and last no longer than `lasting`."""
        begin = self.seconds + seconds
        self._plan(begin, Process(work, begin + lasting, share))

    def wait(self, seconds: float) -> None:
        """Let the process that asks go on after a while. Raises Killed where its time is over before."""
        own = self._current
        assert own is not None, "only processes wait"
        until = self.seconds + seconds
        is_over = until > own.end
        self._plan(max(self._at, own.end) if is_over else until, own)
        self._back.release()
        own.go.acquire()
        own.since = time.thread_time()
        if is_over:
            raise Killed("its time is over")

    def run(self, until: float) -> None:
        """Let the simulation go on. What a process raises is raised here."""
        while self._due and self._due[0][0] <= until and not self._failed:
            self._at, _, process = heapq.heappop(self._due)
            self._current = process
            if process.thread is None:
                process.thread = threading.Thread(target=self._live, args=(process,), daemon=True)
                process.thread.start()
            process.go.release()
            self._back.acquire()
            self._current = None
        if self._failed:
            raise self._failed[0]

    def share(self, seconds: float) -> None:
        """Let the process that asks have a second of the processor take so long."""
        assert self._current is not None
        self._current.share = seconds

    def spread(self, count: int) -> Workers:
        """Return workers that wait side by side."""
        return Workers(self, count)

    def side_by_side(self, works: Iterable[Work]) -> None:
        """Let all of these begin now, and wait until they are done. Raises what one of them raises."""
        own = self._current
        assert own is not None
        left, failed = [0], list[BaseException]()

        def done(work: Work) -> None:
            with _Kept(failed):  # a killed worker kills whom it works for
                work()
            left[0] -= 1
            if not left[0]:
                self._plan(self.seconds, own)

        begin = self.seconds
        for work in works:
            left[0] += 1
            self._plan(begin, Process(lambda work=work: done(work), own.end, own.share))  # type: ignore[misc]
        self._back.release()
        own.go.acquire()
        own.since = time.thread_time()
        if failed:
            raise failed[0]

    def _computed(self) -> float:
        own = self._current
        return 0.0 if own is None else (time.thread_time() - own.since) * own.share

    def _plan(self, at: float, process: Process) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, process))

    def _live(self, process: Process) -> None:
        process.go.acquire()
        process.since = time.thread_time()
        with _Kept(self._failed):  # raised where the simulation is run
            process.work()
        self._back.release()


class _Kept:
    """A context manager that keeps what its block raises, whatever that is, in a list."""

    def __init__(self, failed: list[BaseException]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep the error, and go on."""
        if error is not None:
            self._failed.append(error)
        return True


class Workers(Executor):
    """Workers that do one item each at a time, as threads do that wait for EC2."""

    def __init__(self, kernel: Kernel, count: int) -> None:
        self._kernel, self._count = kernel, count

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        """Do each item as soon as a worker is free; give the answers in their order."""
        items = list(iterables[0])
        answers: list[Any] = [None] * len(items)
        left = iter(range(len(items)))

        def work() -> None:
            for index in left:
                answers[index] = fn(items[index])

        self._kernel.side_by_side([work] * min(self._count, len(items)))
        return iter(answers)


@dataclass(slots=True)
class Lambda:
    """Lambda of one account: functions that run at once, idle environments, events that wait, and the delayed queue.

    `idle` is how many environments each function has at the beginning.
    """

    kernel: Kernel
    concurrency: int
    dice: Random
    idle: int = 1
    running: int = 0
    most: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    environments: dict[str, list[float]] = field(default_factory=dict)
    """of each function those that are idle, by when they became so"""
    due: list[Work] = field(default_factory=list)

    def invoke(self, function: str, work: Work, timeout: float, share: float = 1.0) -> None:
        """Accept an event: the function runs once with it, as soon as it may."""
        self._later(INVOKE_SECONDS, function, work, timeout, share, 0)

    def delay(self, invoke: Work, seconds: float) -> None:
        """Have dispatch invoke something after a while."""
        self.kernel.after(seconds, lambda: self._fell_due(invoke))

    def _later(
        self, seconds: float, function: str, work: Work, timeout: float, share: float, refused: int
    ) -> None:
        self.kernel.after(seconds, lambda: self._begin(function, work, timeout, share, refused))

    def _begin(self, function: str, work: Work, timeout: float, share: float, refused: int) -> None:
        if self.running >= self.concurrency:
            self.seen[f"{function} throttled"] += 1
            wait = min(2.0**refused, LONGEST_BACKOFF_SECONDS)
            self._later(wait, function, work, timeout, share, refused + 1)
            return
        self.running += 1
        self.most = max(self.most, self.running)
        self.seen[function] += 1
        seconds = 0.0 if self._is_warm(function) else self.dice.uniform(*START_SECONDS)
        self.seen[f"{function} cold"] += bool(seconds)
        self.kernel.after(
            seconds, lambda: self._work(function, work, timeout, share), lasting=timeout, share=share
        )

    def _is_warm(self, function: str) -> bool:
        now = self.kernel.seconds
        idle = self.environments.setdefault(function, [now] * self.idle)
        while idle:
            if now - idle.pop() <= KEPT_SECONDS:  # the one that was used last
                return True
        return False

    def _work(self, function: str, work: Work, timeout: float, share: float) -> None:
        try:
            work()
        except Killed:
            self.seen[f"{function} killed"] += 1
            self.running -= 1
            self._later(REINVOKED_SECONDS, function, work, timeout, share, 0)
            return
        self.running -= 1
        self.environments[function].append(self.kernel.seconds)

    def _fell_due(self, invoke: Work) -> None:
        self.due.append(invoke)
        if len(self.due) == 1:
            self.kernel.after(POLL_SECONDS, self._hand_over)

    def _hand_over(self) -> None:
        due, self.due = self.due, []
        for first in range(0, len(due), BATCH):
            batch = due[first : first + BATCH]
            self.invoke("dispatch", lambda batch=batch: self._dispatch(batch), 60)  # type: ignore[misc]

    def _dispatch(self, batch: list[Work]) -> None:
        for invoke in batch:
            self.kernel.wait(DISPATCH_SECONDS)
            invoke()
