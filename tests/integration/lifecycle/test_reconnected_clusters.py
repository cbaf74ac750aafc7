"""Clusters that are connected again: functions have an old snapshot until the first new one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.controllers.provisioning import provision
from nodesmith.errors import Transient
from nodesmith.model.functions import Heartbeat
from tests.fakes.heartbeats import FakeHeartbeats
from tests.smallworld.world import World, pod_manifest

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def left_behind() -> World:
    """Return a world with one node whose last snapshot shows eight pods that waited when it was disconnected."""
    world = World({f"web-{number}": pod_manifest(f"web-{number}") for number in range(3)})
    world.settle()
    for number in range(8):
        world.add(f"late-{number}")
    world.observe()
    return world


def test_nothing_is_bought_for_pods_of_a_snapshot_from_before_the_cluster_was_disconnected() -> None:
    world = left_behind()
    world.unseen_until = world.now + 2 * DAY + timedelta(minutes=2)
    world.now += 2 * DAY
    world.remove([f"late-{number}" for number in range(8)])
    world.live(timedelta(minutes=10))
    assert len(world.cloud.instances) == 1
    assert world.violations() == []


def test_pods_that_still_wait_get_nodes_once_the_first_snapshot_shows_them() -> None:
    world = left_behind()
    world.unseen_until = world.now + 2 * DAY + timedelta(minutes=2)
    world.now += 2 * DAY
    world.live(timedelta(minutes=1))
    assert len(world.cloud.instances) == 1
    world.settle()
    assert world.is_settled()
    assert world.violations() == []


def unreadable() -> Heartbeat | None:
    raise Transient("the table is away")


@pytest.mark.parametrize("is_readable", [True, False])
def test_an_old_snapshot_that_may_still_be_true_is_bought_for(is_readable: bool) -> None:
    """A forwarder writes a snapshot only after a change, and pods may wait for long until a limit is raised."""
    world = left_behind()
    world.now += DAY
    seen = Heartbeat(world.now - timedelta(minutes=1), world.now - DAY)
    beats = (lambda: seen) if is_readable else unreadable
    assert provision(replace(world.provisioning(), last_heartbeat=beats)).launched


def test_a_snapshot_is_old_an_hour_after_the_last_heartbeat() -> None:
    world = left_behind()
    taken_at = world.now
    world.now += 3 * HOUR
    for since, is_bought in ((HOUR + timedelta(seconds=1), False), (HOUR, True)):
        heartbeats = FakeHeartbeats([Heartbeat(world.now - since, taken_at)])
        outcome = provision(replace(world.provisioning(), last_heartbeat=heartbeats.last))
        assert bool(outcome.launched) == is_bought
