"""Lives of moves: a settled cluster with too much capacity, repeated with a different fault in each life."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from nodesmith.model.ec2.launches import Instance
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodepools import SPOT_TYPES
from nodesmith.model.metrics.metrics import Metrics
from tests import builders
from tests.samples import spread
from tests.scenarios.crashes import stand_still
from tests.smallworld.branches import copied
from tests.smallworld.world import CONCERNS, Boundaries, Messages, World, pod_manifest

MOVING = (*CONCERNS, Concern.DISRUPTION)
ON_DEMAND = (
    builders.expression("karpenter.sh/capacity-type", "In", "on-demand"),
    *builders.EXPRESS[1:],
)
QUIET = timedelta(minutes=2)
"""The time from a settled cluster to the removal of pods; the next tick finds the change."""

LONG_ENOUGH = timedelta(minutes=4)
"""The time after the removal of pods by which a move has begun; the world settles only after the move."""


def until(world: World, reached: Callable[[], object], within: timedelta = timedelta(minutes=10)) -> datetime:
    """Run the world second by second until a condition holds, and return the time."""
    end = world.now + within
    while not reached():
        assert world.now < end, [(c.name, c.phase, c.reason) for c in world.store.claims.values()]
        world.live(timedelta(seconds=1))
    return world.now


def settled(pods: int = 20, requirements: Sequence[Mapping[str, Any]] = builders.EXPRESS) -> World:
    """Return a cluster with `pods` pods, and room for only a few more."""
    manifests = {f"web-{n:02d}": pod_manifest(f"web-{n:02d}", memory="2Gi") for n in range(pods)}
    nodepool = builders.nodepool_manifest(requirements=requirements)
    nodepool["metadata"]["annotations"] = {SPOT_TYPES: "Never"}  # so that a life has only one move
    world = World(manifests, nodepool=nodepool)
    world.concerns = MOVING
    world.settle()
    world.live(QUIET)
    return world


@cache
def _settled(pods: int, *, spot: bool) -> World:
    return settled(pods, builders.EXPRESS if spot else ON_DEMAND)


def resumed(world: World) -> World:
    """Return a copy of a world that continues in the same way whatever happens to other copies."""
    made = copied(world)
    made._dice = random.Random()  # noqa: S311
    made._dice.setstate(world._dice.getstate())
    made.metrics = Metrics()  # copies share those of the original
    return made


def shrink(world: World, left: int) -> None:
    """Scale the Deployment down."""
    world.remove(sorted(world.pods)[left:])


@dataclass(frozen=True, slots=True)
class Life:
    """One scenario for a move. `happens` is called when the pods are removed, and may schedule events."""

    name: str
    before: int = 7
    after: int = 2
    happens: Callable[[World], None] = lambda _: None
    spot: bool = False

    def lived(self, boundaries: Boundaries | None = None, messages: Messages | None = None) -> World:
        """Return the world when everything is over."""
        world = self.begun(messages)
        if boundaries is not None:
            boundaries.look = world.held if boundaries.look else None
            world.boundaries = boundaries
        world.live(LONG_ENOUGH)
        world.settle()
        return world

    def begun(self, messages: Messages | None = None) -> World:
        """Return the world just after pods have been removed."""
        world = resumed(_settled(self.before, spot=self.spot))
        world.messages = messages or world.messages
        shrink(world, self.after)
        self.happens(world)
        return world


def crashes(life: Life, sample: int = 0) -> Iterator[tuple[frozenset[int], list[str]]]:
    """Run a life with a crash at each boundary, or at about `sample` of them; yield the moments and the violations."""
    moments = _moments(life)
    for moment in spread(moments, sample, life.name):
        fatal = frozenset({moment})
        yield fatal, life.lived(Boundaries(fatal, look=None)).violations()


@cache
def _moments(life: Life) -> list[int]:
    boundaries = Boundaries()
    life.lived(boundaries)
    return boundaries.distinct()


def several_crashes(life: Life, sets: int) -> Iterator[tuple[frozenset[int], list[str]]]:
    """Run a life `sets` times, with several random crashes each."""
    moments, dice = _moments(life), random.Random(life.name)  # noqa: S311
    for _ in range(sets):
        fatal = frozenset(dice.sample(moments, dice.choice((2, 3, 5))))
        yield fatal, life.lived(Boundaries(fatal, look=None)).violations()


def pauses(life: Life, sample: int) -> Iterator[tuple[int, list[str]]]:
    """Run a life with a function paused at about `sample` of its boundaries, while all others continue."""
    moments = _moments(life)
    for moment in spread(moments, sample, life.name):
        boundaries = Boundaries(look=None)
        world = life.begun()
        world.boundaries = boundaries
        boundaries.visits[moment] = lambda world=world: stand_still(world)  # type: ignore[misc]
        world.live(LONG_ENOUGH)
        world.settle()
        yield moment, world.violations()


def _later(seconds: int, what: Callable[[World], None]) -> Callable[[World], None]:
    def happens(world: World) -> None:
        world.mishaps.append((world.now - builders.NOW + timedelta(seconds=seconds), what))

    return happens


def _no_capacity(world: World) -> None:
    world.cloud.stock = {"*": 0}
    _later(300, lambda w: w.cloud.stock.clear())(world)


def _never_boots(world: World) -> None:
    since = world.now

    def boots(instance: Instance) -> bool:
        return instance.launched_at <= since or instance.launched_at >= since + timedelta(minutes=12)

    world.boots = boots


def _deleted(world: World) -> None:
    for name in sorted(world.cluster.nodeclaims)[:1]:
        world.cluster.delete("NodeClaim", name)


def _oldest(world: World) -> Instance:
    return min(world.cloud.alive(), key=lambda instance: (instance.launched_at, instance.id))


LIVES = (
    Life("a node becomes a cheaper one"),
    Life("a node's pods find free room", 20, 10, spot=True),
    Life("nothing is to be had", happens=_no_capacity),
    Life("the replacement never joins", happens=_never_boots),
    Life("the source is deleted while it is looked at", happens=_later(25, _deleted)),
    Life(
        "the source is interrupted",
        happens=_later(50, lambda w: w.warn(_oldest(w).id)),
        spot=True,
        before=20,
        after=10,
    ),
    Life(
        "the source is interrupted while its replacement starts",
        happens=_later(45, lambda w: w.warn(_oldest(w).id)),
    ),
)
