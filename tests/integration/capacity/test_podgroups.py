"""Groups of pods in the small world: all of their nodes are bought or none, and none is left of what is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from nodesmith.model.kubernetes.provisioningrequests import GangStage
from tests.scenarios import crashes
from tests.scenarios.crashes import Story
from tests.scenarios.gangs import GANGS
from tests.smallworld.world import World

NAMES = tuple(f"train-{number}" for number in range(4))
_POOL = GANGS[0].nodepool


def grouped(before: Callable[[World], None] | None = None) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        for name in NAMES:
            world.add(name, cpu="3")
        world.group("train", *NAMES, least=4)
        if before is not None:
            before(world)

    return prepare


def story(name: str, before: Callable[[World], None] | None = None) -> Story:
    return Story(name, {"first": {"cpu": "3"}}, grouped(before), nodepool=_POOL, exact=False)


def running(world: World) -> list[str]:
    return sorted(name for name in NAMES if world.pods[name]["spec"].get("nodeName"))


def test_all_pods_of_a_group_get_nodes_and_each_node_is_bought_once() -> None:
    world = story("a group of four pods").lived()

    assert crashes.violations(world, most=1000, disturbed=0) == []
    assert running(world) == list(NAMES)
    mine = [claim for claim in world.store.claims.values() if not claim.nominated]
    assert len(mine) == 4
    world.live(timedelta(minutes=15))
    assert world.store.gangs == {}, "its room is no longer kept"
    assert running(world) == list(NAMES)


def test_nothing_is_left_of_the_nodes_of_a_group_that_cannot_be_had_in_full() -> None:
    def short(world: World) -> None:
        world.cloud.stock = {"*": 3}

    world = story("a group for which EC2 has too little", short).begun()
    world.live(timedelta(minutes=16))
    world.cloud.stock = {"*": 0}
    world.live(timedelta(minutes=12))

    assert running(world) == []
    (gang,) = world.store.gangs.values()
    assert (gang.stage, gang.failures > 1) == (GangStage.WAITING, True)
    assert len(world.cloud.instances) - len(world.cloud.alive()) == 2, "some were launched, and terminated"
    assert {claim.nominated for claim in world.store.claims.values()} <= {("default/first",)}


def test_a_group_that_was_rolled_back_gets_its_nodes_once_ec2_has_them() -> None:
    def short(world: World) -> None:
        world.cloud.stock = {"*": 3}
        world.mishaps.append((timedelta(minutes=20), lambda w: w.cloud.stock.clear()))

    world = story("a group for which EC2 has too little at first", short).begun()
    world.live(timedelta(minutes=60))

    assert running(world) == list(NAMES)


def test_a_group_survives_crashes_at_any_point() -> None:
    for fatal, found in crashes.crashes(story("a group of four pods"), sample=6):
        assert found == [], fatal
