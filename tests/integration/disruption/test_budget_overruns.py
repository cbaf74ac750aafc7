"""At no time are more Nodes disrupted than the budget allows. The benchmarks check a thousand clusters."""

from __future__ import annotations

import pytest

from tests.experiments.overruns import observed
from tests.samples import sampled

CLUSTERS = sampled(3, whole=50)
"""The number of random clusters."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_an_observer_counts_no_more_disrupted_nodes_than_the_budget_allows(seed: int) -> None:
    world = observed(seed)
    assert world.overruns == []
    assert world.most > 0, "nothing was disrupted"
