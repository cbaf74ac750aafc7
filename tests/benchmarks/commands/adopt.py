"""Takeovers from Karpenter and back under load: evictions, and nodes that are drifted, forgotten, leaked or doubled."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.scenarios.takeovers import report


def figures(seeds: int = 50, stride: int = 8) -> list[Figure]:
    """Adopt and release random clusters while pods come and nodes join, with crashes at the commands' boundaries.

    Each boundary is a crash in every `stride`th cluster.
    """
    found = report(range(seeds), stride)
    note = f"{found.clusters} clusters, {found.crashes:,} crashes"
    returns = f"in {found.returns} returns of Karpenter, from a minute after it"
    return [
        Figure("adopt-evictions", found.evictions, "pods", 0, note),
        Figure(
            "adopt-violations",
            len(found.violations),
            "violations",
            0,
            "; ".join(found.violations[:3]) or note,
        ),
        Figure(
            "adopt-contended", len(found.contended), "actions", 0, "; ".join(found.contended[:3]) or returns
        ),
    ]
