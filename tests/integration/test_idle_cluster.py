"""In a cluster in which nothing changes ticks invoke functions, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.functions.hints import Concern
from tests.idleness import IdleWorld, invocations_a_month, lived, ticks_a_month, woken_otherwise

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
def test_an_idle_cluster_invokes_functions_no_more_often_than_schedules_do(
    disruption: dict[str, Any],
) -> None:
    world = IdleWorld(3, 2, **disruption)
    lived(world, hours=2)
    assert woken_otherwise(world) == 0


def test_pods_that_may_not_be_disrupted_or_evicted_wake_nobody_for_ever() -> None:
    world = IdleWorld(3, 2, consolidateAfter="30s")
    world.guard(maxUnavailable=0)
    for number, pod in enumerate(world.pods.values()):
        pod["metadata"]["annotations"] = {DO_NOT_DISRUPT: "true" if number % 2 else "30m"}
    lived(world, hours=2)
    assert woken_otherwise(world) == 0


def test_an_idle_cluster_is_looked_at_every_thirty_minutes_but_for_what_resolutions_need() -> None:
    world = IdleWorld(3, 2, consolidateAfter="Never")
    lived(world, hours=2)
    assert world.ticks.pop(Concern.READINESS) == 4 + 24
    assert set(world.ticks.values()) == {4}
    assert invocations_a_month(world, hours=2) == ticks_a_month()
