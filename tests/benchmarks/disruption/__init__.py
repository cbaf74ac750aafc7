"""Disruption: prices of fleets after consolidation, and the cost of a pass over a large fleet."""

from __future__ import annotations

from tests.benchmarks.disruption import consolidated, idle, month, passes, rules
from tests.benchmarks.figures import Figure


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure prices of consolidated fleets, times of passes, and violations of rules by moves."""
    return [
        *consolidated.figures(quick=quick),
        *passes.figures(nodes=500 if quick else 5000),
        *idle.figures(nodes=500 if quick else 5000),
        *rules.figures(60 if quick else 10_000),
        *month.figures(days=1 if quick else 30),
    ]
