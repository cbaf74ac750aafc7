"""Whole lives of a small cluster in which moves are made: users, failures and time do what they like with them, too."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from nodesmith.model.events import Concern
from tests import builders
from tests.moves import MOVING, ON_DEMAND
from tests.property.test_lives import Lives
from tests.world import Messages, World, pod_manifest

RUNS = int(os.environ.get("NODESMITH_MOVING_LIVES", "60"))
"""Lives looked at; more by night."""


class MovingLives(Lives):
    """One cluster whose NodePool lets go of nodes as soon as it may."""

    @initialize(
        pods=st.integers(3, 8),
        lost=st.sampled_from((0.0, 0.0, 0.3)),
        doubled=st.sampled_from((0.0, 0.3)),
        seed=st.integers(0, 2**16),
        guarded=st.booleans(),
    )
    def begin(self, pods: int, lost: float, doubled: float, seed: int, guarded: bool) -> None:
        self.world = World(
            {f"web-{n}": pod_manifest(f"web-{n}") for n in range(pods)},
            nodepool=builders.nodepool_manifest(requirements=ON_DEMAND),
            messages=Messages(lost=lost, doubled=doubled, delayed=lost, seed=seed),
        )
        self.world.concerns = MOVING
        self.count = pods
        if guarded:
            self.world.cluster.poddisruptionbudgets["default/web"] = {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            }
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


TestMovingLives: Any = MovingLives.TestCase
TestMovingLives.settings = settings(
    max_examples=RUNS, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
