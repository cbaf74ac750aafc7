"""How long to wait for something: longer on a busy machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

_QUIET = 0.75  # the idle share of the processors' time
_SAMPLE_SECONDS = 2.0
_GLANCE_SECONDS, _LONGEST_BLINK_SECONDS = 0.05, 0.5
_BLINKS = 4.0
"""The pause between checks is this many times the duration of a check, because checks load the machine, too."""


def patient(seconds: float) -> float:
    """Return the wait, at the machine's current load, for something that takes `seconds` on an idle one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def patient_seconds(seconds: float) -> int:
    """Return the same wait in whole seconds, at least one, as options of servers and programs take it."""
    return max(1, math.ceil(patient(seconds)))


def hurried(speed: float) -> float:
    """Return how fast a clock may run at the machine's current load, if it may run at `speed` on an idle one.

    A cluster's timeouts are in seconds of its clock, but its work takes real seconds.
    """
    return max(1.0, speed / patient(1))


def eventually(
    holds: Callable[[], object], what: str = "it", seconds: float = 60, tell: Callable[[], str] = str
) -> float:
    """Wait until something holds, and return the seconds that it took; fail with the text of `tell`.

    `seconds` are real seconds on an idle machine; a busy one gets more.
    """
    began = looked = time.monotonic()
    while not holds():
        now = time.monotonic()
        assert now < began + patient(seconds), f"not within {seconds:g} s: {what}\n{tell()}"
        time.sleep(min(max(_GLANCE_SECONDS, _BLINKS * (now - looked)), _LONGEST_BLINK_SECONDS))
        looked = time.monotonic()
    return time.monotonic() - began


def until_quiet(seconds: float) -> None:
    """Wait until the machine is mostly idle, but at most this long. The caller reports the conditions."""
    deadline = time.monotonic() + seconds
    while _idle_share() < _QUIET and time.monotonic() < deadline:
        pass


def _idle_share() -> float:
    began = processor_ticks()
    time.sleep(_SAMPLE_SECONDS)
    return idle_share(began)


def idle_share(since: tuple[int, int]) -> float:
    """Return the idle share of the processors' time since an earlier result of `processor_ticks`."""
    idle, total = (now - then for now, then in zip(processor_ticks(), since, strict=True))
    return idle / total


def processor_ticks() -> tuple[int, int]:
    """Return the processors' idle time and total time since the machine started."""
    every = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return every[3] + every[4], sum(every)
