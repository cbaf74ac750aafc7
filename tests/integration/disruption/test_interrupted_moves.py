"""Nodes that EC2 reclaims during consolidation: nothing leaks, nothing is bought twice, and no pod is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.model.ledger.moves import Stage
from tests.scenarios.moves import LIVES
from tests.smallworld.world import STEP, World

CHEAPER = LIVES[0]
LIFE = timedelta(minutes=8)


def reached(stage: Stage) -> World:
    """Return a world in which replacing a node by a cheaper one has reached this stage."""
    world = CHEAPER.begun()
    for _ in range(60):
        if [move.stage for move in world.store.moves.values()] == [stage]:
            return world
        world.live(STEP)
    raise AssertionError(f"no move came to {stage}")


@pytest.mark.parametrize("stage", [Stage.PROPOSED, Stage.REPLACING])
def test_an_interrupted_candidate_of_a_move_is_replaced_once(stage: Stage) -> None:
    world = reached(stage)
    (move,) = world.store.moves.values()
    world.warn(world.store.claims[move.sources[0]].instance_id)
    world.live(LIFE)
    world.settle()
    assert world.violations() == []
    assert (len(world.cloud.instances), dict(world.store.moves)) == (2, {})


def test_a_replacement_that_is_interrupted_while_it_boots_leaves_nothing_behind() -> None:
    world = reached(Stage.REPLACING)
    (move,) = world.store.moves.values()
    world.warn(world.store.claims[move.replacements[0]].instance_id)
    world.live(LIFE)
    world.settle()
    assert world.violations() == []
    assert len(world.cloud.alive()) == 1
