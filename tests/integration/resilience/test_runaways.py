"""Whatever makes nodesmith buy nodes in vain, it buys few, says why, and goes on where nothing is wrong.

The benchmark `runaway` measures whole days.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.ledger.breakers import MOST_IN_VAIN
from tests import builders
from tests.samples import sampled
from tests.scenarios.runaway import (
    CAUSES,
    HOUR,
    MINUTE,
    STORMS,
    after_a_storm,
    in_vain,
    pass_a_day,
    said,
    tripped,
)

MOST = 4
SPAN = sampled(timedelta(minutes=100), whole=timedelta(hours=2, minutes=40))
"""By the longer one all purchases of the first day are made, by the shorter one all but the last."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CAUSES)
def test_a_runaway_buys_at_most_four_nodes_in_vain_and_says_why(name: str) -> None:
    cause = CAUSES[name]
    world = cause.world()
    pass_a_day(world, SPAN)
    assert in_vain(cause, world) <= MOST
    assert cause.reported in said(world)
    assert bool(tripped(world)) == ("paused until" in said(world))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STORMS)
def test_a_storm_that_is_no_runaway_trips_nothing_and_leaves_no_pod_without_a_node(name: str) -> None:
    world = after_a_storm(STORMS[name], pods=sampled(4, whole=8), span=sampled(45 * MINUTE, whole=HOUR))
    assert tripped(world) == []
    assert world.waiting() == []


def test_other_nodepools_go_on_and_pods_use_them() -> None:
    """Until the breaker has tripped, pods wait for the NodePool that is broken: it has the higher weight."""
    world = CAUSES["nodes never register"].world()
    world.cluster.nodepools["default"]["spec"]["weight"] = 10
    world.cluster.nodepools["second"] = builders.nodepool_manifest("second")
    world.boots = lambda instance: instance.claim.startswith("second-")
    pass_a_day(world, HOUR + 10 * MINUTE)
    assert len([i for i in world.cloud.instances.values() if i.claim.startswith("default-")]) <= MOST_IN_VAIN
    assert world.waiting() == []
    (node,) = world.cluster.nodes.values()
    assert node["metadata"]["labels"][NODEPOOL] == "second"
