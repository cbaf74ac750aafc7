"""Retries of functions: drains that Lambda might take for recursive loops, and notices whose first attempts fail."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.experiments.selfhints import DRAIN, long_drain, longest_stall
from tests.scenarios.retries import FAILED, Attempt, RetriedWorld

RAISED: tuple[Attempt, ...] = ("raises", "is throttled")
DIED: tuple[Attempt, ...] = ("dies", "dies in CreateFleet")


def figures() -> list[Figure]:
    """Measure with the clock of the simulation, which advances in steps of five seconds."""
    allowed, terminated = long_drain(), long_drain("Terminate")
    stall, stall_before = (longest_stall(world).total_seconds() for world in (allowed, terminated))
    note = (
        f"{DRAIN.total_seconds() / 60:.0f} minutes, {len(allowed.looks)} runs; if Lambda terminates loops "
        f"{stall_before:.0f} s, {len(terminated.dropped)} messages dropped"
    )
    return [
        Figure("loop-stall-s", stall, "s", 10, note),
        _retried("retried-notice-s", RAISED, 30),
        _retried("retried-notice-of-dead-functions-s", DIED, 120),
    ]


def _retried(name: str, attempts: tuple[Attempt, ...], at_most: float) -> Figure:
    took = {attempt: RetriedWorld(attempt).replaced_after().total_seconds() for attempt in attempts}
    reported = ", ".join(f"an attempt {attempt}: {seconds:.0f} s" for attempt, seconds in took.items())
    return Figure(
        name, max(took.values()), "s", at_most, f"without ticks, after {FAILED} failed attempts; {reported}"
    )
