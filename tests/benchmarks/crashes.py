"""Every moment at which a function can die, died at: nothing may leak, double, or be forgotten."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.crashes import crash_report


def figures() -> list[Figure]:
    """Kill the functions everywhere and count what was promised and did not hold."""
    report = crash_report()
    note = "before and after every call of every port, and at random sets of them"
    return [
        Figure("crash-points", report.points, "points", float("inf"), note),
        Figure("crash-violations", report.violations, "violations", 0, "leaked, doubled or forgotten"),
    ]
