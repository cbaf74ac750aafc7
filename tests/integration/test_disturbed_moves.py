"""Moves in whose midst something is taken away, or nobody sees what happens: no pod is harmed, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.moves import Stage
from tests.moves import LIVES
from tests.world import STEP, World

CHEAPER, ROOM = LIVES[:2]
LIFE = timedelta(minutes=6)
"""By then a move has come to its end, whatever it is."""


def claims(world: World, *, new: bool) -> list[NodeClaim]:
    """Return the claims that a move takes away or has taken, or those that it has bought, by name."""
    began = min(claim.created_at for claim in world.store.claims.values())
    found = (claim for claim in world.store.claims.values() if (claim.created_at > began) is new)
    return sorted(found, key=lambda claim: claim.name)


def at(stage: Stage) -> Callable[[World], bool]:
    return lambda world: [move.stage for move in world.store.moves.values()] == [stage]


def bought(phase: Phase) -> Callable[[World], bool]:
    return lambda world: any(claim.phase is phase for claim in claims(world, new=True))


def ending(world: World) -> bool:
    return any(claim.is_ending for claim in claims(world, new=False))


MOMENTS: dict[str, Callable[[World], bool]] = {
    "proposed": at(Stage.PROPOSED),
    "launched": bought(Phase.LAUNCHED),
    "registered": bought(Phase.REGISTERED),
    "ready": bought(Phase.INITIALIZED),
    "draining": ending,
}


def reached(moment: str) -> World:
    """Return a world in which a node becomes a cheaper one, and has come so far."""
    world = CHEAPER.begun()
    for _ in range(80):
        if MOMENTS[moment](world):
            return world
        world.live(STEP)
    raise AssertionError(f"no move is {moment}")


def over(world: World) -> World:
    world.live(LIFE)
    world.settle()
    return world


def take(world: World, kind: str, claim: NodeClaim) -> None:
    """Let somebody delete the object of a claim, or end its instance."""
    if kind == "instance":
        world.lose(claim.instance_id, "shutting-down")
    else:
        world.cluster.delete(kind, claim.name if kind == "NodeClaim" else f"node-{claim.instance_id}")


def is_there(world: World, kind: str, claim: NodeClaim) -> bool:
    """Return whether there is such a thing of a claim."""
    if kind == "NodeClaim":
        return claim.name in world.cluster.nodeclaims
    if kind == "Node":
        return f"node-{claim.instance_id}" in world.cluster.nodes
    return any(instance.id == claim.instance_id for instance in world.cloud.alive())


@pytest.mark.parametrize("kind", ["NodeClaim", "Node", "instance"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_source_that_is_deleted_by_hand_leaves_nothing_behind(moment: str, kind: str) -> None:
    world = reached(moment)
    (source,) = claims(world, new=False)
    assert is_there(world, kind, source)
    take(world, kind, source)
    assert over(world).violations() == []
    assert len(world.cloud.alive()) == 1


@pytest.mark.parametrize("kind", ["NodeClaim", "Node", "instance"])
@pytest.mark.parametrize("moment", [name for name in MOMENTS if name != "proposed"])
def test_a_replacement_that_is_deleted_by_hand_leaves_nothing_behind(moment: str, kind: str) -> None:
    world = reached(moment)
    (replacement,) = claims(world, new=True)
    if not is_there(world, kind, replacement):
        assert (moment, kind) in {("launched", "Node"), ("launched", "NodeClaim")}, "nobody has made it yet"
        return
    take(world, kind, replacement)
    assert over(world).violations() == []
    assert len(world.cloud.alive()) == 1


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_nodepool_that_is_deleted_takes_a_move_with_it(moment: str) -> None:
    world = reached(moment)
    world.cluster.nodepools.clear()
    over(world)
    left = (world.cloud.alive(), world.store.claims, world.cluster.nodeclaims, world.store.moves)
    assert left == ([], {}, {}, {}), "its pods wait, and nothing else is left"
    assert [*world.harm, *world.cluster.violations] == []


@pytest.mark.parametrize("minutes", [2, 12])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_forwarder_that_shows_minutes_long_what_was_harms_nobody(moment: str, minutes: int) -> None:
    world = reached(moment)
    world.unseen_until = world.now + timedelta(minutes=minutes)
    world.live(timedelta(minutes=minutes))
    assert [*world.harm, *world.cluster.violations] == []
    assert over(world).violations() == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_pods_that_come_while_nobody_sees_them_find_a_place(moment: str) -> None:
    world = reached(moment)
    world.unseen_until = world.now + timedelta(minutes=3)
    for number in range(4):
        world.add(f"late-{number}", cpu="1", memory="2Gi")
    world.live(timedelta(minutes=3))
    assert over(world).violations() == []


@pytest.mark.parametrize("moment", ["launched", "registered"])
def test_a_budget_that_allows_no_eviction_ever_is_not_drained_into(moment: str) -> None:
    world = reached(moment)
    (source,) = claims(world, new=False)
    world.guard(maxUnavailable=0)
    world.live(timedelta(minutes=10))
    assert not world.store.claims[source.name].is_ending, "its pods can never leave"
    assert (world.violations(), len(world.cloud.alive())) == ([], 1)


def test_capacity_that_is_gone_at_the_second_look_leaves_the_node_as_it_was() -> None:
    world = reached("proposed")
    (source,) = claims(world, new=False)
    world.cloud.stock = {"*": 0}
    world.live(timedelta(minutes=3))
    world.cloud.stock = {}
    assert [claim.name for claim in world.store.claims.values()] == [source.name]
    assert not any(call.method == "evict" for call in world.cluster.calls)
    world.live(timedelta(minutes=20))
    assert over(world).violations() == []
