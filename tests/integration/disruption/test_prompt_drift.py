"""A change of a NodePool shows on its NodeClaims once readiness has read it, without waiting for a tick."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nodesmith.model.functions import Concern
from tests.builders import EXPRESS, nodepool_manifest
from tests.fakes.store import FakeStore
from tests.scenarios.moves import MOVING
from tests.smallworld.world import Boundaries, World, pod_manifest

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.smallworld.world.STEP", SECOND)


def shown_drifting(world: World) -> set[str]:
    """Return the names of the NodeClaims with a Drifted condition."""
    shown = {name: each["status"]["conditions"] for name, each in world.cluster.nodeclaims.items()}
    return {
        n for n, all_ in shown.items() if any(c["type"] == "Drifted" and c["status"] == "True" for c in all_)
    }


def drifting(world: World) -> int:
    """Count the NodeClaims with a Drifted condition."""
    return len(shown_drifting(world))


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


class Overtaken(Boundaries):
    """Another function writes all claims just before the first one is saved."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__()
        self.rivals = [store]

    def cross(self, where: str) -> None:
        super().cross(where)
        if where == "before FakeStore.save" and self.rivals:
            claims = self.rivals.pop().claims
            claims.update({name: replace(each, revision=each.revision + 1) for name, each in claims.items()})


def test_no_node_is_moved_for_a_drift_that_its_nodeclaim_does_not_show() -> None:
    world = settled()
    world.concerns = tuple(concern for concern in MOVING if concern is not Concern.DISRUPTION)
    relabel(world, "blue")
    world.live(5 * SECOND)
    world.boundaries = Overtaken(world.store)
    world.run(Concern.DISRUPTION)
    sources = {name for move in world.store.moves.values() for name in move.sources}
    assert sources
    assert sources <= shown_drifting(world)
