"""Nothing is launched from a snapshot with forged NodePools, EC2NodeClasses or NodeClaims."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests import builders
from tests.objects import forgeries
from tests.objects.forgeries import FORGERIES, WATCHED_FOR, ForgedWorld, forged_world, launches
from tests.smallworld.world import pod_manifest

CONFIGURATION = NodeConfiguration.of(builders.nodeclass())
STATIC = {**builders.nodepool_manifest(), "spec": {**builders.nodepool_manifest()["spec"], "replicas": 2}}


def watch(world: ForgedWorld) -> None:
    """Write a snapshot, and run the world for as long as tests watch it."""
    world.observe()
    world.live(WATCHED_FOR)


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_nodepool_or_nodeclass_launches_nothing_and_the_genuine_one_does(kind: str) -> None:
    world = forged_world(FORGERIES[kind])
    watch(world)
    assert launches(world) == 0

    world.forgery = None
    world.settle()
    assert [claim.phase for claim in world.store.claims.values()] == [Phase.INITIALIZED]


def test_pod_events_report_that_readiness_has_read_something_else() -> None:
    world = forged_world(FORGERIES["user data"])
    world.observe()
    world.live(timedelta(minutes=3))
    reported = [event.message for event in world.cluster.events if event.reason == "FailedScheduling"]
    assert any("differs from what readiness last read from the API server" in message for message in reported)


def test_limits_raised_only_in_the_snapshot_have_no_effect() -> None:
    world = forged_world(
        FORGERIES["limits"], nodepool=builders.nodepool_manifest(limits={"cpu": "4"}), pods=12
    )
    watch(world)
    assert launches(world) == 0

    world.forgery = None
    watch(world)
    assert sum(claim.capacity.of("cpu") for claim in world.store.claims.values()) <= 4000


def test_nodes_that_are_understated_in_the_snapshot_do_not_extend_the_limits() -> None:
    def shrunk(document: dict[str, Any]) -> None:
        for node in document["nodes"]:
            node["status"]["capacity"] = {"cpu": "1m", "memory": "1Mi", "pods": "1"}

    world = forged_world(shrunk, nodepool=builders.nodepool_manifest(limits={"cpu": "4"}), pods=12)
    watch(world)
    bought = [world.cloud.instances[i].instance_type for i in world.cloud.instances]
    kinds = {kind.name: kind for kind in instance_types(builders.catalog(), CONFIGURATION)}
    assert 0 < sum(kinds[name].capacity.cpu_milli for name in bought) <= 4000


def test_a_forged_nodeclaim_launches_nothing() -> None:
    world = forged_world(forgeries.with_nodeclaim, pods=0)
    watch(world)
    assert launches(world) == 0


def test_a_static_nodepool_is_not_scaled_by_forged_replicas() -> None:
    world = forged_world(forgeries.nodepool_says(replicas=20), nodepool=STATIC, pods=0)
    watch(world)
    assert launches(world) == 0

    world.forgery = None
    watch(world)
    assert launches(world) == 2
    world.forgery = forgeries.nodepool_says(replicas=0)
    watch(world)
    assert [claim.is_ending for claim in world.store.claims.values()] == [False, False]


def test_an_abandoned_claim_is_not_launched_from_a_forged_nodeclass() -> None:
    """Its launch template was never created, so it would be created from the snapshot."""
    world = ForgedWorld({"web-0": pod_manifest("web-0")})
    world.observe()
    world.away["cloud"] = world.now + timedelta(minutes=2)
    world.live(timedelta(minutes=1))
    (claim,) = world.store.claims.values()
    assert claim.phase is Phase.PENDING
    world.forgery = FORGERIES["user data"]
    world.live(WATCHED_FOR)
    assert forgeries.HOSTILE not in repr(world.cloud.templates)


def test_a_users_change_takes_effect_once_readiness_has_read_it() -> None:
    world = ForgedWorld({"web-0": pod_manifest("web-0")})
    changed = builders.nodeclass_manifest(userData="#!/bin/sh\necho hello")
    changed["metadata"]["generation"] = 2
    world.cluster.nodeclasses["default"] = changed
    pool = builders.nodepool_manifest(labels={"team": "blue"})
    pool["metadata"]["generation"] = 2
    world.cluster.nodepools["default"] = pool
    started = world.now
    world.observe()
    while not world.cloud.instances and world.now < started + WATCHED_FOR:
        world.step()
    assert world.now - started <= timedelta(seconds=15)
    (claim,) = world.store.claims.values()
    assert claim.labels["team"] == "blue"
