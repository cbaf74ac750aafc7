"""In a cluster without changes, only ticks invoke functions."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.functions import Concern
from tests.experiments.idleness import IdleWorld, invocations_a_month, lived, other_wakes, ticks_a_month

EVERY_MINUTE = {"nodes": "0", "schedule": "* * * * *", "duration": "2m"}


@pytest.mark.parametrize(
    "disruption",
    [
        {"consolidateAfter": "30s"},
        {"consolidateAfter": "20m", "consolidationPolicy": "WhenEmpty"},
        {"consolidateAfter": "Never"},
        {"budgets": [{"nodes": "0"}]},
        {"budgets": [EVERY_MINUTE]},
    ],
    ids=["quiet soon", "quiet late", "never consolidated", "no budget", "a window without end"],
)
def test_in_an_idle_cluster_only_schedules_invoke_functions(
    disruption: dict[str, Any],
) -> None:
    world = IdleWorld(3, 2, **disruption)
    lived(world, hours=2)
    assert other_wakes(world) == 0


def test_pods_that_cannot_be_disrupted_or_evicted_cause_no_endless_invocations() -> None:
    world = IdleWorld(3, 2, consolidateAfter="30s")
    world.guard(maxUnavailable=0)
    for number, pod in enumerate(world.pods.values()):
        pod["metadata"]["annotations"] = {DO_NOT_DISRUPT: "true" if number % 2 else "30m"}
    lived(world, hours=2)
    assert other_wakes(world) == 0


def test_an_idle_cluster_is_checked_every_thirty_minutes_except_for_resolutions() -> None:
    world = IdleWorld(3, 2, consolidateAfter="Never")
    lived(world, hours=2)
    assert world.ticks.pop(Concern.READINESS) == 4 + 24
    assert set(world.ticks.values()) == {4}
    assert invocations_a_month(world, hours=2) == ticks_a_month()
