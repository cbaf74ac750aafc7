"""Room by history against a fixed percentage: seconds that pods wait, and dollars, in a week with peaks and bursts.

The workload has 20 pods at night and 120 by day, with steps at the hours at which users and batch jobs come, fewer at
weekends, noise, and bursts at random times. Four weeks are recorded, and the fifth is counted minute by minute. A node
is ready a minute after it was needed. Room costs the price of the pods that fit into it. A percentage is of the pods
that are wanted at the time, as in a CapacityBuffer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nodesmith.decisions.provisioning.growth import STEP, next_size_at, noted, sizing
from nodesmith.model.karpenter.bufferannotations import Quantile
from nodesmith.model.karpenter.capacitybuffers import CapacityBuffer
from tests.benchmarks.figures import Figure

BEGIN = datetime(2026, 10, 5, tzinfo=UTC)  # a Monday
MINUTE, WEEK = timedelta(minutes=1), timedelta(days=7)
RECORDED = 4 * WEEK
POD_HOURLY_USD = 0.04
"""A pod of one vCPU and 4 GiB on demand."""
_BURSTS_A_WEEK = 14
_BUFFER = CapacityBuffer("default", "room", "Deployment/web")


def demand(seed: int = 7) -> list[int]:
    """Return how many pods the workload wants in each minute of five weeks."""
    dice = random.Random(seed)  # noqa: S311
    minutes = (RECORDED + WEEK) // MINUTE
    bursts = [0] * minutes
    for _ in range(5 * _BURSTS_A_WEEK):
        start, size = dice.randrange(minutes), dice.randrange(10, 40)
        for minute in range(start, min(minutes, start + dice.randrange(10, 40))):
            bursts[minute] += size
    wanted, noise = [], 0.0
    for minute in range(minutes):
        at = BEGIN + minute * MINUTE
        noise = 0.98 * noise + dice.gauss(0, 0.4)
        wanted.append(max(1, round(_usual(at) + noise) + bursts[minute]))
    return wanted


def _usual(at: datetime) -> float:
    hour = at.hour + at.minute / 60
    by_day = 100 * max(0.0, math.sin(math.pi * (hour - 6) / 16))
    jobs = 40 * (8 <= hour < 9) + 30 * (13 <= hour < 13.5)
    return 20 + (0.3 * by_day if at.weekday() > 4 else by_day + jobs)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The seconds that pods waited in total, and what the room cost."""

    waited: float
    usd: float


def counted(wanted: Sequence[int], room: Callable[[int], int]) -> Outcome:
    """Return the outcome of the last week; `room` returns the size of the room by minute."""
    first = RECORDED // MINUTE
    waited, usd, ready = 0.0, 0.0, wanted[first]
    for minute in range(first, len(wanted)):
        waited += 60 * max(0, wanted[minute] - ready)
        usd += max(0, ready - wanted[minute]) / 60 * POD_HOURLY_USD
        ready = wanted[minute] + room(minute)
    return Outcome(waited, usd)


def by_history(wanted: Sequence[int], value: float) -> Callable[[int], int]:
    """Return the room that a buffer with this quantile has, by minute."""
    quantile, history, sizes = Quantile(value), None, dict[int, int]()
    due, size = BEGIN, 0
    for minute, pods in enumerate(wanted):
        at = BEGIN + minute * MINUTE
        history = noted(history, pods, at)
        if at >= due and at - BEGIN >= RECORDED - STEP:
            size, due = sizing(_BUFFER, quantile, history, at).count or 0, next_size_at(at)
        sizes[minute] = size
    return lambda minute: sizes[minute]


def by_percentage(wanted: Sequence[int], percentage: int) -> Callable[[int], int]:
    """Return the room of a buffer with a fixed percentage, by minute."""
    return lambda minute: -(-wanted[minute] * percentage // 100)


def figures() -> list[Figure]:
    """Compare quantiles with the smallest fixed percentage that saves pods as much waiting."""
    wanted = demand()
    none = counted(wanted, lambda _: 0)
    fixed = [(percentage, counted(wanted, by_percentage(wanted, percentage))) for percentage in range(1, 301)]
    found = []
    for value in (0.8, 0.9, 0.95, 0.99):
        outcome = counted(wanted, by_history(wanted, value))
        saved = none.waited - outcome.waited
        percentage, alike = next((p, each) for p, each in fixed if each.waited <= outcome.waited)
        note = (
            f"{saved:,.0f} of {none.waited:,.0f} pending seconds saved for ${outcome.usd:.2f} a week;"
            f" {percentage} % saves as many for ${alike.usd:.2f}"
        )
        goal = 0.9 if value == 0.95 else math.inf
        found.append(Figure(f"buffer-cost-ratio-{value:g}", outcome.usd / alike.usd, "times", goal, note))
        found.append(Figure(f"buffer-saved-per-usd-{value:g}", saved / outcome.usd, "s/USD", note=note))
    return found
