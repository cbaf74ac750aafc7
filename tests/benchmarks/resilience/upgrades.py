"""Invariants that break while functions switch between two versions on one ledger."""

from __future__ import annotations

from collections import Counter

from tests.benchmarks.figures import Figure
from tests.scenarios.upgrades import DAY, day, missing

DAYS = 6


def figures(days: int = DAYS) -> list[Figure]:
    """Simulate this many days, each with another seed. Expected events that never occur also count as violations."""
    passed = [day(seed) for seed in range(1, days + 1)]
    seen = sum((each.seen for each in passed), Counter[str]())
    broken = [law for each in passed for law in each.violations] + missing(seen)
    switches, deaths = sum(each.switches for each in passed), sum(each.deaths for each in passed)
    met, runs = sum(each.read_of_next for each in passed), sum(each.runs for each in passed)
    note = (
        f"{days} days of {DAY.total_seconds() / 60:.0f} minutes, {runs:,} runs, {switches:,} switches of a function, "
        f"{deaths} deaths, {seen['launched']} nodes; {met:,} documents of the later version read by the earlier one"
    )
    return [Figure("upgrade-violations", len(broken), "violations", 0, note)]
