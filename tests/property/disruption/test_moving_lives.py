"""Simulated lives of a small cluster with moves, random user actions, failures and delays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from nodesmith.model.functions import Concern
from tests import builders
from tests.property.disruption.test_lives import Lives, beginning
from tests.samples import sampled
from tests.scenarios.moves import MOVING, ON_DEMAND
from tests.smallworld.world import Messages

RUNS = sampled(12, whole=300)
"""The number of simulated lives."""


class MovingLives(Lives):
    """One cluster whose NodePool consolidates nodes as soon as allowed."""

    @beginning(3, 8)
    def begin(self, pods: int, queues: Messages, guarded: bool) -> None:
        self.set_up(pods, queues, guarded, builders.nodepool_manifest(requirements=ON_DEMAND))
        self.world.concerns = MOVING
        self.world.settle(patience=timedelta(minutes=5))

    @rule(left=st.integers(1, 4))
    def work_shrinks(self, left: int) -> None:
        self.world.remove(sorted(self.world.pods)[left:])
        self.world.live(timedelta(seconds=70))

    @rule(nodes=st.sampled_from(("0", "1", "100%")))
    def the_budget_changes(self, nodes: str) -> None:
        pool = self.world.cluster.nodepools["default"]
        pool["metadata"]["generation"] += 1
        pool["spec"]["disruption"] = {"budgets": [{"nodes": nodes}]}

    @rule()
    def disruption_runs_for_no_reason(self) -> None:
        self.world.run(Concern.DISRUPTION)


TestMovingLives: Any = pytest.mark.exhaustive(MovingLives.TestCase)
TestMovingLives.settings = settings(
    max_examples=RUNS, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
