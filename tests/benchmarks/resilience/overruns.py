"""Random clusters whose Nodes have foreign finalizers: how often do more Nodes than the budget look disrupted?"""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.experiments.overruns import LIFE, observed

CLUSTERS = 1000


def figures(clusters: int = CLUSTERS) -> list[Figure]:
    """Simulate disruption in this many clusters, and count overruns."""
    lived = [observed(seed) for seed in range(clusters)]
    overrun = [f"cluster {seed}: {w.overruns[0]}" for seed, w in enumerate(lived) if w.overruns]
    ended = sum(len(w.cloud.instances) - len(w.cloud.alive()) for w in lived)
    held, most = sum(w.held_nodes for w in lived), max(w.most for w in lived)
    note = (
        f"{clusters} clusters of 2 to 10 nodes, {LIFE.seconds // 60} minutes each; {ended:,} nodes ended, {held:,}"
        f" of them held by another controller; at most {most} disrupted at once"
    )
    overruns = sum(len(w.overruns) for w in lived)
    return [Figure("budget-overruns", overruns, "overruns", 0, "; ".join(overrun[:3]) or note)]
