"""nodesmith does not touch objects of EKS Auto Mode and Karpenter in its cluster."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests import builders
from tests.objects import foreign
from tests.scenarios.coexistence import OURS, SharedWorld, lived_day
from tests.smallworld.world import World, pod_manifest


@pytest.fixture(scope="module")
def later() -> SharedWorld:
    """Return the world after the eventful hours of a day. `make bench` runs the whole day."""
    return lived_day(hours=3)


def test_objects_of_auto_mode_are_never_written_while_pods_and_nodes_come_and_go(
    later: SharedWorld,
) -> None:
    assert later.foreign_writes() == []


def test_nodesmiths_own_nodes_come_and_go_in_the_same_time(later: SharedWorld) -> None:
    assert later.harm == []
    assert len(later.cloud.instances) > 2
    ready = {c["type"]: c["status"] for c in later.cluster.nodepools[OURS]["status"]["conditions"]}
    assert ready["Ready"] == "True"


def test_nothing_is_bought_for_a_pod_that_fits_a_node_of_auto_mode() -> None:
    world = SharedWorld({"web-0": pod_manifest("web-0", cpu="2")})
    world.settle()
    assert world.pods["web-0"]["spec"]["nodeName"] == "i-auto1"
    assert world.cloud.instances == {}
    assert world.foreign_writes() == []


def test_a_node_is_bought_for_a_pod_that_fits_no_node_of_auto_mode() -> None:
    world = SharedWorld({"web-0": pod_manifest("web-0", cpu="7")})
    world.settle()
    assert len(world.cloud.instances) == 1


def test_a_pod_that_requires_auto_mode_is_left_to_it() -> None:
    selector = {"eks.amazonaws.com/compute-type": "auto"}
    world = SharedWorld({"web-0": pod_manifest("web-0", cpu="7", nodeSelector=selector)})
    world.settle(patience=timedelta(minutes=10))
    assert world.cloud.instances == {}


def test_karpenters_nodeclaims_and_nodes_are_not_changed() -> None:
    world = World({})
    world.cluster.nodeclaims |= {
        "coming": foreign.karpenters_nodeclaim("coming"),
        "running": foreign.karpenters_nodeclaim("running", instance="i-karpenter1"),
        "gone": foreign.karpenters_nodeclaim("gone", instance="i-karpenter2"),
    }
    before = foreign.copied(world.cluster.nodeclaims)
    world.live(timedelta(hours=1))
    assert foreign.changed(before, world.cluster.nodeclaims) == []
    assert world.cloud.instances == {}
    assert builders.nodepool_manifest()["metadata"]["name"] in world.cluster.nodepools
