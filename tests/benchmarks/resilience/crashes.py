"""Functions are killed at every possible moment; nothing may be leaked, duplicated or forgotten."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.scenarios.crashes import ENDS, crash_report
from tests.scenarios.crashpairs import pair_report
from tests.scenarios.gangs import gang_report


def figures(firsts: int = 0) -> list[Figure]:
    """Kill the functions everywhere, and count violations.

    For pairs of crashes, `firsts` limits the first crashes to consider per story; 0 considers all.
    """
    report = crash_report()
    note = "before and after every port call, and at random sets of these points"
    return [
        Figure("crash-points", report.points, "points", float("inf"), note),
        Figure("crash-violations", report.violations, "violations", 0, "leaked, duplicated or forgotten"),
        *_of_ends(firsts),
        *_of_gangs(),
    ]


def _of_ends(firsts: int) -> list[Figure]:
    """Kill once at every boundary of every story of a node's end, and twice at every pair of boundaries."""
    once, twice = crash_report(0, ENDS), pair_report(firsts)
    points, broken = once.points + 2 * twice.pairs, once.violations + twice.violations
    note = (
        f"once at every boundary of each node's end; twice at {twice.pairs:,} pairs, {twice.reported:,} steps"
    )
    return [
        Figure("crash-points-lifecycle", points, "points", float("inf"), note),
        Figure("crash-pairs-lifecycle", twice.pairs, "pairs", float("inf"), note),
        Figure("crash-violations-lifecycle", broken, "violations", 0, "leaked, left over or not drained"),
    ]


def _of_gangs() -> list[Figure]:
    """Kill at boundaries of every story of a gang, and count those that got a part of their nodes."""
    report = gang_report()
    note = f"at {report.points:,} boundaries of stories in which EC2 has too few nodes, or loses some"
    return [
        Figure("gang-partials", report.partials, "gangs", 0, note),
        Figure("gang-violations", report.violations, "violations", 0, "leaked, left over or forgotten"),
    ]
