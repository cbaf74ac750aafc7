"""At no time are more Nodes disrupted than the budget allows. The benchmarks check a thousand clusters."""

from __future__ import annotations

import os

import pytest

from tests.overruns import observed

CLUSTERS = int(os.environ.get("NODESMITH_OBSERVED_CLUSTERS", "12"))
"""Number of random clusters. Nightly runs check more."""


@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_an_observer_counts_no_more_disrupted_nodes_than_the_budget_allows(seed: int) -> None:
    world = observed(seed)
    assert world.overruns == []
    assert world.most > 0, "nothing was disrupted"
