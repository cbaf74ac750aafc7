"""How dear and how slow plans are: prices beside first-fit in Karpenter's manner and beside what no plan can undercut.

All inputs are made here: tables of what pods ask for, and seeded recipes. `python -m tests.benchmarks packing` runs
these only; with `--quick` fewer and smaller ones.
"""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.benchmarks.packing import growth, judgements, prices, speeds


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure prices, times, what becomes of random problems, and how times grow."""
    found = prices.figures(quick=quick) + speeds.figures(quick=quick) + judgements.figures(quick=quick)
    return found if quick else found + growth.figures()
