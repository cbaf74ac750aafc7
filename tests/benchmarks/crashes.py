"""Every moment at which a function can die, died at: nothing may leak, double, or be forgotten."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.crashes import ENDS, crash_report
from tests.crashpairs import pair_report


def figures(firsts: int = 0) -> list[Figure]:
    """Kill the functions everywhere and count what was promised and did not hold.

    Of the first of two crashes `firsts` are looked at for each story, all where it is 0.
    """
    report = crash_report()
    note = "before and after every call of every port, and at random sets of them"
    return [
        Figure("crash-points", report.points, "points", float("inf"), note),
        Figure("crash-violations", report.violations, "violations", 0, "leaked, doubled or forgotten"),
        *_of_ends(firsts),
    ]


def _of_ends(firsts: int) -> list[Figure]:
    """Kill once at every boundary of every story of a node's end, and twice at every pair of them."""
    once, twice = crash_report(0, ENDS), pair_report(firsts)
    points, broken = once.points + 2 * twice.pairs, once.violations + twice.violations
    note = f"once at every boundary of each node's end; twice at {twice.pairs:,} pairs of them, {twice.told:,} steps"
    return [
        Figure("crash-points-lifecycle", points, "points", float("inf"), note),
        Figure("crash-pairs-lifecycle", twice.pairs, "pairs", float("inf"), note),
        Figure("crash-violations-lifecycle", broken, "violations", 0, "leaked, left over, undrained"),
    ]
