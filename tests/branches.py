"""A world that is told again and again from where its lives part, and not from its beginning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from tests.world import World


def branches(world: World, moments: Iterable[int]) -> Iterator[World]:
    """Yield for each moment, in rising order, the world before the step that brings it, to go its own way from there.

    `world` has been observed, and nothing has run in it yet. Its moments are counted as ever. Its messages must come
    once and in time: all branches share its dice.
    """
    before, ahead = world, copied(world)
    ahead.step()
    for moment in moments:
        while ahead.boundaries.passed < moment:
            before, ahead = ahead, copied(ahead)
            ahead.step()
        yield copied(before)


def copied(world: World) -> World:
    """Return a world that goes its own way from here; what never changes is shared."""
    for port in (world.cloud, world.cluster):
        port.calls.clear()
    world.hints.sent.clear()
    world.cluster.events.clear()
    world.boundaries.moments.clear()
    store, cloud = world.store, world.cloud
    frozen: list[Any] = [
        *store.claims.values(),
        *store.nodeclasses.values(),
        *store.offered,
        *store.offered.values(),
        *cloud.instances.values(),
        *cloud.templates.values(),
        *cloud._tokens.values(),
        *cloud.tags.values(),
        *world.hints.waiting,
        cloud.cluster,
        world._dice,
        world.metrics,
        *world.daemonsets,
    ]
    return deepcopy(world, {id(each): each for each in frozen})
