"""How long to wait for something: longer on a machine that is busy with other things."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_QUIET = 0.75  # of the processors' time is idle
_SAMPLE_SECONDS = 2.0
_GLANCE_SECONDS, _LONGEST_BLINK_SECONDS = 0.05, 0.5
_BLINKS = 4.0
"""Pauses between glances are so many times as long as a glance takes: to look costs the machine something, too."""


def patient(seconds: float) -> float:
    """Return how long to wait, as busy as the machine is, for what takes so many seconds on an idle one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def hurried(speed: float) -> float:
    """Return how fast a clock may run, as the machine is now, that may run so fast where nothing else runs.

    A cluster's time-outs are seconds of its clock, and what it does takes seconds of life.
    """
    return max(1.0, speed / patient(1))


def eventually(
    holds: Callable[[], object], what: str = "it", seconds: float = 60, tell: Callable[[], str] = str
) -> float:
    """Wait until something holds, and give the seconds that it took; fails with what `tell` has to say of it.

    `seconds` are of life, on a machine that does nothing else: it has more on one that does.
    """
    began = looked = time.monotonic()
    while not holds():
        now = time.monotonic()
        assert now < began + patient(seconds), f"not within {seconds:g} s: {what}\n{tell()}"
        time.sleep(min(max(_GLANCE_SECONDS, _BLINKS * (now - looked)), _LONGEST_BLINK_SECONDS))
        looked = time.monotonic()
    return time.monotonic() - began


def until_quiet(seconds: float) -> None:
    """Wait for a machine that does little else, but no longer than this: whoever measures says what comes of it."""
    deadline = time.monotonic() + seconds
    while _idle_share() < _QUIET and time.monotonic() < deadline:
        pass


def _idle_share() -> float:
    began = processor_ticks()
    time.sleep(_SAMPLE_SECONDS)
    return idle_share(began)


def idle_share(since: tuple[int, int]) -> float:
    """Return which part of the processors' time was idle since `processor_ticks` gave this."""
    idle, total = (now - then for now, then in zip(processor_ticks(), since, strict=True))
    return idle / total


def processor_ticks() -> tuple[int, int]:
    """Return the processors' idle time and all of it, since the machine started."""
    every = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return every[3] + every[4], sum(every)
