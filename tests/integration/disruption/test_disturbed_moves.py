"""Moves during which objects are deleted or snapshots are outdated: pods stay unharmed, and nothing leaks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache

import pytest

from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.moves import Stage
from tests.scenarios.moves import LIVES, resumed
from tests.smallworld.world import STEP, World

CHEAPER, ROOM = LIVES[:2]
LIFE = timedelta(minutes=6)
"""After this time any move has ended."""


def claims(world: World, *, new: bool) -> list[NodeClaim]:
    """Return the names of a move's candidates or of its replacements."""
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
    """Return a world in which replacing a node by a cheaper one has reached this stage."""
    return resumed(_reached(moment))


@cache
def _reached(moment: str) -> World:
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
    """Delete an object of a claim, or terminate its instance."""
    if kind == "instance":
        world.lose(claim.instance_id, "shutting-down")
    else:
        world.cluster.delete(kind, claim.name if kind == "NodeClaim" else f"node-{claim.instance_id}")


def is_there(world: World, kind: str, claim: NodeClaim) -> bool:
    """Return whether a claim has such an object."""
    if kind == "NodeClaim":
        return claim.name in world.cluster.nodeclaims
    if kind == "Node":
        return f"node-{claim.instance_id}" in world.cluster.nodes
    return any(instance.id == claim.instance_id for instance in world.cloud.alive())


@pytest.mark.parametrize("kind", ["NodeClaim", "Node", "instance"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_manually_deleting_a_candidate_leaves_nothing_behind(moment: str, kind: str) -> None:
    world = reached(moment)
    (source,) = claims(world, new=False)
    assert is_there(world, kind, source)
    take(world, kind, source)
    assert over(world).violations() == []
    assert len(world.cloud.alive()) == 1


@pytest.mark.parametrize("kind", ["NodeClaim", "Node", "instance"])
@pytest.mark.parametrize("moment", [name for name in MOMENTS if name != "proposed"])
def test_manually_deleting_a_replacement_leaves_nothing_behind(moment: str, kind: str) -> None:
    world = reached(moment)
    (replacement,) = claims(world, new=True)
    if not is_there(world, kind, replacement):
        assert (moment, kind) in {("launched", "Node"), ("launched", "NodeClaim")}, "it does not exist yet"
        return
    take(world, kind, replacement)
    assert over(world).violations() == []
    assert len(world.cloud.alive()) == 1


@pytest.mark.parametrize("moment", MOMENTS)
def test_deleting_a_nodepool_ends_its_moves(moment: str) -> None:
    world = reached(moment)
    world.cluster.nodepools.clear()
    over(world)
    left = (world.cloud.alive(), world.store.claims, world.cluster.nodeclaims, world.store.moves)
    assert left == ([], {}, {}, {}), "only its pending pods are left"
    assert [*world.harm, *world.cluster.violations] == []


@pytest.mark.parametrize("minutes", [2, 12])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_forwarder_that_is_minutes_behind_does_no_harm(moment: str, minutes: int) -> None:
    world = reached(moment)
    world.unseen_until = world.now + timedelta(minutes=minutes)
    world.live(timedelta(minutes=minutes))
    assert [*world.harm, *world.cluster.violations] == []
    assert over(world).violations() == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_pods_created_while_the_forwarder_is_behind_are_placed(moment: str) -> None:
    world = reached(moment)
    world.unseen_until = world.now + timedelta(minutes=3)
    for number in range(4):
        world.add(f"late-{number}", cpu="1", memory="2Gi")
    world.live(timedelta(minutes=3))
    assert over(world).violations() == []


@pytest.mark.parametrize("moment", ["launched", "registered"])
def test_a_node_whose_budget_never_allows_evictions_is_not_drained(moment: str) -> None:
    world = reached(moment)
    (source,) = claims(world, new=False)
    world.guard(maxUnavailable=0)
    world.live(timedelta(minutes=10))
    assert not world.store.claims[source.name].is_ending, "its pods can never be evicted"
    assert (world.violations(), len(world.cloud.alive())) == ([], 1)


def test_if_capacity_is_gone_at_validation_the_node_is_not_changed() -> None:
    world = reached("proposed")
    (source,) = claims(world, new=False)
    world.cloud.stock = {"*": 0}
    world.live(timedelta(minutes=3))
    world.cloud.stock = {}
    assert [claim.name for claim in world.store.claims.values()] == [source.name]
    assert not any(call.method == "evict" for call in world.cluster.calls)
    world.live(timedelta(minutes=20))
    assert over(world).violations() == []
