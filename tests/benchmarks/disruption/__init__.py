"""Disruption: what consolidation makes of fleets, and what a pass over a large one takes."""

from __future__ import annotations

from tests.benchmarks.disruption import consolidated, idle, month, passes, rules
from tests.benchmarks.figures import Figure


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure what fleets cost once they are consolidated, how long passes take, and how many rules moves break."""
    return [
        *consolidated.figures(quick=quick),
        *passes.figures(nodes=500 if quick else 5000),
        *idle.figures(nodes=500 if quick else 5000),
        *rules.figures(60 if quick else 10_000),
        *month.figures(days=1 if quick else 30),
    ]
