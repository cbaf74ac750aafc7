"""Disruption: what consolidation makes of fleets, and what a pass over a large one takes."""

from __future__ import annotations

from tests.benchmarks.disruption import consolidated, passes
from tests.benchmarks.figures import Figure


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure what fleets cost once they are consolidated, and how long passes take."""
    return consolidated.figures(quick=quick) + passes.figures(nodes=500 if quick else 5000)
