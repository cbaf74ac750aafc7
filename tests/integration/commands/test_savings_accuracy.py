"""The price that `nodesmith savings` predicts, and what the cluster costs once nodesmith has managed it for an hour."""

from __future__ import annotations

import pytest

from tests.experiments.savingsaccuracy import outcome
from tests.samples import sampled

LARGEST_ERROR = 0.08
"""of one cluster; benchmarks measure the mean, whose goal is 3 %"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", sampled([108], whole=[101, 102, 104, 106, 107, 108]))
def test_a_cluster_costs_nearly_what_was_predicted(seed: int) -> None:
    found = outcome(seed)

    assert found.real < found.before
    assert abs(found.error) < LARGEST_ERROR
