"""A change of a NodePool shows on its NodeClaims once readiness has read it, without waiting for a tick."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.functions import Concern
from tests.builders import EXPRESS, nodepool_manifest
from tests.scenarios.moves import MOVING
from tests.smallworld.world import World, pod_manifest

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.smallworld.world.STEP", SECOND)


def drifting(world: World) -> int:
    """Count the NodeClaims with a Drifted condition."""
    shown = [each["status"]["conditions"] for each in world.cluster.nodeclaims.values()]
    return sum(any(c["type"] == "Drifted" and c["status"] == "True" for c in each) for each in shown)


def settled() -> World:
    """Return a cluster of several nodes after a run of disruption."""
    pods = {f"web-{number}": pod_manifest(f"web-{number}", cpu="6") for number in range(6)}
    world = World(pods, nodepool=nodepool_manifest(requirements=EXPRESS))
    world.concerns = MOVING
    world.settle()
    world.live(timedelta(minutes=2))
    return world


def relabel(world: World, value: str) -> None:
    template = world.cluster.nodepools["default"]["spec"]["template"]
    template["metadata"] = {"labels": {"team": value}}
    world.observe()


@pytest.mark.parametrize("before_tick", [55, 30])
def test_a_changed_template_shows_as_drifted_on_all_nodeclaims_within_5_seconds(before_tick: int) -> None:
    world = settled()
    while world.until_tick() != before_tick * SECOND:
        world.live(SECOND)
    count = len(world.store.claims)
    assert count > 1
    relabel(world, "blue")
    world.live(5 * SECOND)
    assert drifting(world) == count


def test_changes_that_readiness_has_not_read_do_not_clear_drift() -> None:
    world = settled()
    relabel(world, "blue")
    world.live(5 * SECOND)
    known = drifting(world)
    relabel(world, "green")
    world.run(Concern.DISRUPTION)
    assert drifting(world) == known > 0
