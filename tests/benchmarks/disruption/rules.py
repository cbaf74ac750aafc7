"""Thousands of random clusters: violations of rules by the moves proposed for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodesmith.decisions.disruption.search.search import propose
from tests.benchmarks.figures import Figure
from tests.problems.shrunk import shrunk, violations

_EVERY = 4
"""among so many clusters, one has its zones rebalanced, and another one drifts"""


@dataclass(slots=True)
class Checked:
    """The number of clusters examined, the moves proposed for them, and the violations by cluster."""

    clusters: int = 0
    moves: int = 0
    bad: dict[int, list[str]] = field(default_factory=dict)

    def look_at(self, seed: int) -> None:
        """Check the cluster of this seed."""
        cluster = shrunk(seed, rebalancing=seed % _EVERY == 0, drifting=seed % _EVERY == 2)
        inputs = cluster.inputs()
        found = propose(inputs)
        said = violations(cluster, inputs, found)
        self.clusters, self.moves = self.clusters + 1, self.moves + len(found.proposals)
        if said:
            self.bad[seed] = said

    def __str__(self) -> str:
        """Return a summary."""
        first = {seed: said[0] for seed, said in list(self.bad.items())[:3]}
        return f"{self.moves} moves in {self.clusters} random clusters" + (f"; {first}" if first else "")


def figures(count: int) -> list[Figure]:
    """Check `count` clusters; see `tests.problems.shrunk` for the rules."""
    checked = Checked()
    for seed in range(count):
        checked.look_at(seed)
    return [Figure("budget-violations", sum(map(len, checked.bad.values())), "violations", 0, str(checked))]
