"""Random clusters by the thousand: what is wrong with the moves proposed for them."""

from __future__ import annotations

from nodesmith.decisions.disruption.search import propose
from tests.benchmarks.figures import Figure
from tests.problems.shrunk import shrunk, violations


def figures(count: int) -> list[Figure]:
    """Look at so many clusters; see `tests.problems.shrunk` for what is looked for."""
    bad: dict[int, str] = {}
    moves = wrong = 0
    for seed in range(count):
        cluster = shrunk(seed)
        inputs = cluster.inputs()
        found = propose(inputs)
        said = violations(cluster, inputs, found)
        moves, wrong = moves + len(found.proposals), wrong + len(said)
        if said:
            bad[seed] = said[0]
    note = f"{moves} moves in {count} random clusters" + (f"; {dict(list(bad.items())[:3])}" if bad else "")
    return [Figure("move-violations", wrong, "violations", 0, note)]
