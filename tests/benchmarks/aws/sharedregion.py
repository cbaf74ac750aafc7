"""A discrete-event simulation of a region that clusters share: Lambda's concurrency, a delayed queue, EC2's buckets.

Every run is a thread of its own, and only one thread runs at a time. While a run waits for a call, simulated time
advances. Computation takes as long in the simulation as the processor takes for it here.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import Reader, decode
from tests import builders
from tests.smallworld.world import Killed

START_SECONDS = (0.6, 1.0)
"""From an invocation without an idle environment to its handler, see `tests.benchmarks.decisions.coldstart`."""
KEPT_SECONDS = 600
"""How long Lambda is assumed to keep an idle environment."""
INVOKE_SECONDS = 0.03
"""From an event that Lambda has accepted to its function's start."""
LONGEST_BACKOFF_SECONDS = 300
"""Lambda retries a throttled event after 1, 2, 4 ... seconds (Lambda Developer Guide, invocation-async)."""
REINVOKED_SECONDS = 60
"""Until Lambda retries an event whose process died."""
POLL_SECONDS = 0.1
"""From a due message to dispatch, which receives ten at a time."""
BATCH = 10
DISPATCH_SECONDS = 0.02
"""Duration of each invocation by dispatch."""
MOST_KNOWN = 200
"""The most snapshots that are kept in memory."""

Work = Callable[[], None]


@dataclass(slots=True)
class Process:
    """A simulated process, killed at `end`. `share` is its simulated seconds per second of processor time."""

    work: Work
    end: float
    share: float = 1.0
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    since: float = 0.0
    """The processor time of its thread when it last resumed."""


class Kernel:
    """The simulated time, and the schedule of processes."""

    def __init__(self) -> None:
        self._at = 0.0
        self._due: list[tuple[float, int, Process]] = []
        self._count = 0
        self._current: Process | None = None
        self._back = threading.Semaphore(0)
        self._failed: list[BaseException] = []
        self._end = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return self._at + self._computed()

    def now(self) -> datetime:
        """Return the time of day."""
        return builders.NOW + timedelta(seconds=self.seconds)

    def left(self) -> float:
        """Return how long the current process may still run."""
        assert self._current is not None
        return self._current.end - self.seconds

    def after(self, seconds: float, work: Work, *, lasting: float = float("inf"), share: float = 1.0) -> None:
        """Start a process after `seconds`, and kill it after `lasting` more seconds."""
        begin = self.seconds + seconds
        self._plan(begin, Process(work, begin + lasting, share))

    def wait(self, seconds: float) -> None:
        """Resume the current process after `seconds`. Raises Killed if its time is over before that."""
        own = self._current
        assert own is not None, "only processes wait"
        until = self.seconds + seconds
        is_over = until > own.end
        if not is_over and self._is_next(until):
            self._at, own.since = until, time.thread_time()
            return
        self._plan(max(self._at, own.end) if is_over else until, own)
        self._back.release()
        own.go.acquire()
        own.since = time.thread_time()
        if is_over:
            raise Killed("its time is over")

    def _is_next(self, at: float) -> bool:
        """Return whether no other process is due until a time. To change threads is slow."""
        return at <= self._end and not (self._failed or (self._due and self._due[0][0] <= at))

    def run(self, until: float) -> None:
        """Run the simulation up to a time. Raises what a process raises."""
        self._end = until
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
        """Set how many seconds a second of processor time takes in the current process."""
        assert self._current is not None
        self._current.share = seconds

    @contextmanager
    def unmeasured(self) -> Iterator[None]:
        """Let the computation of the block, which must not wait, take no simulated time."""
        own, begun = self._current, time.thread_time()
        try:
            yield
        finally:
            if own is not None:
                own.since += time.thread_time() - begun

    def spend(self, seconds: float) -> None:
        """Let the current process have computed for so many seconds more."""
        if self._current is not None:
            self._current.since -= seconds

    def spread(self, count: int) -> Workers:
        """Return workers that wait concurrently."""
        return Workers(self, count)

    def side_by_side(self, works: Iterable[Work]) -> None:
        """Start all works now, and wait until they are done. Raises what one of them raises."""
        own = self._current
        assert own is not None
        left, failed = [0], list[BaseException]()

        def done(work: Work) -> None:
            with _Kept(failed):  # a killed worker kills the process that it works for
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
        with _Kept(self._failed):  # raised in `run`
            process.work()
        self._back.release()


class KnownReader(Reader):
    """Reads each snapshot once for all runs. Each run that reads it spends the time that this took."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._snapshots: dict[bytes, tuple[Snapshot, float]] = {}

    def read(self, data: bytes) -> Snapshot:
        """Read a snapshot, as a process does that knows no other one. Raises Rejected."""
        digest, begun = hashlib.sha256(data).digest(), time.thread_time()
        if digest in self._snapshots:
            snapshot, seconds = self._snapshots[digest]
            self._kernel.spend(seconds)
        else:
            snapshot = decode(data)
            if len(self._snapshots) >= MOST_KNOWN:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[digest] = snapshot, time.thread_time() - begun
        return replace(snapshot)  # what it has computed of itself is not shared


class _Kept:
    """A context manager that appends any exception of its block to a list."""

    def __init__(self, failed: list[BaseException]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep and suppress the exception."""
        if error is not None:
            self._failed.append(error)
        return True


class Workers(Executor):
    """Workers that process one item each at a time, like threads that wait for EC2."""

    def __init__(self, kernel: Kernel, count: int) -> None:
        self._kernel, self._count = kernel, count

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        """Process each item as soon as a worker is free, and return the answers in order."""
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
    """Lambda of one account: concurrent runs, idle environments, throttled events, and the delayed queue.

    `idle` is the number of environments that each function has at the start.
    """

    kernel: Kernel
    concurrency: int
    dice: Random
    idle: int = 1
    running: int = 0
    most: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    environments: dict[str, list[float]] = field(default_factory=dict)
    """When each idle environment became idle, by function."""
    due: list[Work] = field(default_factory=list)

    def invoke(self, function: str, work: Work, timeout: float, share: float = 1.0) -> None:
        """Accept an event, for which the function runs once, as soon as concurrency allows."""
        self._later(INVOKE_SECONDS, function, work, timeout, share, 0)

    def delay(self, invoke: Work, seconds: float) -> None:
        """Have dispatch make an invocation after a delay."""
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
            if now - idle.pop() <= KEPT_SECONDS:  # the one used last
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
