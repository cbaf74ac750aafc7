"""Price and speed of plans, compared with first-fit as in Karpenter and with lower bounds.

All inputs are made here, from tables of requests and seeded recipes. `python -m tests.benchmarks packing` runs only
these benchmarks; with `--quick` it runs fewer and smaller ones.
"""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.benchmarks.packing import growth, judgements, prices, speeds


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure prices, times, the audit of random problems, and the growth of times."""
    found = prices.figures(quick=quick) + speeds.figures(quick=quick) + judgements.figures(quick=quick)
    return found if quick else found + growth.figures()
