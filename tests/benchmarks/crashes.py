"""Every moment at which a function can die, died at: nothing may leak, double, or be forgotten."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.crashes import ENDS, crash_report, pair_report

PAIRS = 150
"""Pairs of crashes a story; all of them are some hundred thousand."""


def figures() -> list[Figure]:
    """Kill the functions everywhere and count what was promised and did not hold."""
    report = crash_report()
    note = "before and after every call of every port, and at random sets of them"
    return [
        Figure("crash-points", report.points, "points", float("inf"), note),
        Figure("crash-violations", report.violations, "violations", 0, "leaked, doubled or forgotten"),
        *_of_ends(),
    ]


def _of_ends() -> list[Figure]:
    """Kill once at every boundary of every story of a node's end, and twice at pairs of them."""
    once, twice = crash_report(0, ENDS), pair_report(PAIRS)
    points, broken = once.points + twice.points, once.violations + twice.violations
    note = "once at every boundary of each node's end, and at random pairs of them"
    return [
        Figure("crash-points-lifecycle", points, "points", float("inf"), note),
        Figure("crash-violations-lifecycle", broken, "violations", 0, "leaked, left over, undrained"),
    ]
