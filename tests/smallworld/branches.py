"""Resumes a world from each moment at which its branches diverge, instead of from its beginning."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from tests.smallworld.world import World

AnyWorld = TypeVar("AnyWorld", bound=World)


def branches(world: World, moments: Iterable[int], before_steps: Sequence[int]) -> Iterator[World]:
    """Yield for each moment, in rising order, a copy of the world just before the step that contains it.

    `world` has been observed, and nothing has run in it yet. Moments are counted from its beginning; `before_steps`
    are those that pass before each of its steps, as an equal world has recorded them. Its messages must arrive once and
    on time, because all branches share its random generator.
    """
    stepped = 0
    for moment in moments:
        for _ in range(stepped, bisect_left(before_steps, moment) - 1):
            world.step()
            stepped += 1
        yield copied(world)


def copied(world: AnyWorld) -> AnyWorld:
    """Return a copy of a world that can diverge from here; objects that never change are shared."""
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
        world._seen,
        world._encoded,
        world.metrics,
        *world.daemonsets,
    ]
    return deepcopy(world, {id(each): each for each in frozen})
