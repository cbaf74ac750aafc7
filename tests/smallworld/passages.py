"""The steps of one small world, each executed once and keyed by the world's state and the concerns that messages wake.

Messages are separate from the state: worlds that differ only in pending messages behave alike until one arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from hashlib import blake2b
from math import ceil
from typing import Any, ClassVar

from nodesmith.keys import snapshot_key
from nodesmith.model.functions import WOKEN, Concern
from tests import builders
from tests.smallworld.branches import copied
from tests.smallworld.world import PATIENCE, STEP, World

READS = frozenset(
    {
        "FakeBlobs.get",
        "FakeCloud.cluster_info",
        "FakeCloud.fleet_instances",
        "FakeCloud.instances_of",
        "FakeCloud.living",
        "FakeCloud.notices",
        "FakeCloud.owned",
        "FakeCloud.owned_instances",
        "FakeCloud.resolve",
        "FakeCloud.zonal_shifts",
        "FakeCluster.nodepools_and_nodeclasses",
        "FakeNotices.pending",
        "FakeRoutes.ids",
        "FakeRoutes.of_instance",
        "FakeRoutes.of_reservation",
        "FakeStore.known",
        "FakeStore.learned",
        "FakeStore.load",
    }
)
"""Calls that change nothing: dying before one of them is equivalent to dying after it."""
_HISTORY = frozenset({"calls", "events", "decisions", "sent", "puts"})
"""What ports record for tests, and no function reads."""
_MESSAGES = frozenset({"waiting"})
_NO_STATE = frozenset(
    {"boundaries", "messages", "memory", "metrics", "concerns", "runs", "_again", "_dice"}
    | {"_seen", "_encoded", "_written", "_written_at"}
)
_PORTS = ("store", "cloud", "cluster", "blobs", "hints", "notices")
_KEPT = 1500
"""The number of worlds kept to continue from; other worlds are recomputed."""

Wakings = frozenset[tuple[datetime, Concern]]
"""The concerns that messages wake, each with its step."""
Node = tuple[bytes, Wakings]
"""A world: a digest of its state, and the concerns that its messages wake."""


@dataclass(frozen=True, slots=True)
class Death:
    """A moment (from 1) of a step at which to die, the number of equivalent moments, and the call there."""

    moment: int
    alike: int
    where: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A step: the state after it, the wake-ups it causes, the moments since the last death, and the deaths to try."""

    state: bytes
    wakings: Wakings
    moments: int
    deaths: tuple[Death, ...]


@dataclass(frozen=True, slots=True)
class Road:
    """A step from a state, with the concerns that messages wake and the moments at which functions die."""

    state: bytes
    due: frozenset[Concern]
    fatal: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A state: its time, whether it is a tick, the violations if it is final, and the step that led to it."""

    now: datetime
    is_tick: bool
    broken: tuple[str, ...] | None
    road: Road | None


class Passages:
    """All executed steps of a world whose final state `violations` judges.

    Its messages must arrive once and on time.
    """

    def __init__(self, world: World, violations: Callable[[World], list[str]]) -> None:
        self._violations = violations
        self._places: dict[bytes, Place] = {}
        self._worlds: dict[bytes, World] = {}
        self._passed: dict[Road, Passed] = {}
        self._root = world
        _Once.forget()
        awake = wakings(world)
        self.begun: Node = self._reached(world, None), awake

    @property
    def executed(self) -> int:
        """The number of steps that had to be executed, because no equivalent one existed."""
        return len(self._passed)

    def ended(self, node: Node) -> tuple[str, ...] | None:
        """Return the violations of a final state, or None if the world continues."""
        return self._places[node[0]].broken

    def go(self, node: Node, fatal: tuple[int, ...] = (), *, last: bool = False) -> tuple[Node, Passed]:
        """Return the node after a step in which functions die at these moments, and the step itself.

        `last` means that no function will die from this node on, so the world need not be kept.
        """
        state, awake = node
        place = self._places[state]
        now = frozenset(each for each in awake if each[0] <= place.now)
        due = frozenset() if place.is_tick else frozenset(concern for _, concern in now)
        road = Road(state, due, fatal)
        passed = self._passed.get(road)
        if passed is None:
            passed = self._passed[road] = self._pass(road, last=last)
        return (passed.state, passed.wakings | (awake - now)), passed

    def _pass(self, road: Road, *, last: bool = False) -> Passed:
        world = self._world(road.state, last=last)
        world._again = [(world.now, concern) for concern in sorted(road.due)]
        world.boundaries.fatal = frozenset(road.fatal)
        crossed = step(world)
        world.boundaries.fatal = frozenset()
        died = max(road.fatal, default=0)
        later = wakings(world)
        state = self._reached(world, road)
        return Passed(state, later, len(crossed) - died, tuple(deaths(crossed, died)))

    def _reached(self, world: World, road: Road | None) -> bytes:
        world._again.clear()
        world.hints.waiting.clear()
        state = digest(world)
        if state not in self._places:
            goes_on = world.now < builders.NOW + PATIENCE and not world.is_settled()
            broken = None if goes_on else tuple(self._violations(world))
            self._places[state] = Place(world.now, world.now >= world._next_tick, broken, road)
        self._worlds[state] = world
        if len(self._worlds) > _KEPT:
            del self._worlds[next(iter(self._worlds))]
        return state

    def _world(self, state: bytes, *, last: bool) -> World:
        """Return a world in this state to continue from: the kept one, or a copy."""
        if state not in self._worlds:
            road = self._places[state].road
            if road is None:
                return copied(self._root)
            self._pass(road)
        world = self._worlds.pop(state)
        if last and world is not self._root:
            return world
        self._worlds[state] = world  # mark it as used last
        return copied(world)


def step(world: World) -> list[tuple[str, object]]:
    """Execute one step; return the moments before and after each call in it, in order, each with its run."""
    boundaries = world.boundaries
    boundaries.passed = 0
    boundaries.moments.clear()
    boundaries.look = partial(getattr, world, "runs")
    world.step()
    return list(boundaries.moments)


def deaths(crossed: Sequence[tuple[str, object]], since: int = 0) -> Iterator[Death]:
    """Yield the moments after `since` at which dying makes a difference.

    Dying after a call is equivalent to dying before the next call of the same run; reads change nothing.
    """
    first, last_run = 0, None
    for number, (where, run) in enumerate(crossed[since:], start=since + 1):
        when, _, call = where.partition(" ")
        if run != last_run or (when == "after" and call not in READS):
            if first:
                yield Death(first, number - first, crossed[first - 1][0])
            first, last_run = number, run
    if first:
        yield Death(first, len(crossed) + 1 - first, crossed[first - 1][0])


def wakings(world: World) -> Wakings:
    """Return the concerns that a world's messages wake, each with its step, if none is lost, duplicated or late."""
    messages = list(world._again)
    woken = (*WOKEN, Concern.INTERRUPTION)
    messages += [(each.due_at, each.concern) for each in world.hints.waiting if each.concern in woken]
    return frozenset(
        (world.now + max(0, ceil((at - world.now) / STEP)) * STEP, concern) for at, concern in messages
    )


def digest(world: World) -> bytes:
    """Return a digest of a world's state: everything that affects its future, except messages."""
    held = {name: value for name, value in vars(world).items() if name not in _NO_STATE}
    parts = [_written(name, held.pop(name)) for name in _PORTS]
    parts += [_said(name, value) for name, value in sorted(held.items()) if not callable(value)]
    return blake2b("\n".join(parts).encode(), digest_size=16).digest()


def _written(name: str, port: Any) -> str:
    kept = [f.name for f in fields(port) if f.name not in _HISTORY | _MESSAGES]
    values = {each: getattr(port, each) for each in kept}
    if name == "blobs":  # a snapshot repeats the cluster, and records repeat decisions
        shown = snapshot_key(builders.CLUSTER)
        values["objects"] = {
            key: data for key, data in port.objects.items() if key != shown and "/decisions/" not in key
        }
    return "\n".join(_said(f"{name}.{each}", value) for each, value in values.items() if not callable(value))


def _said(name: str, value: object) -> str:
    """Return a value's name and text; sets are sorted, since equal sets may iterate in different orders."""
    match value:
        case set() | frozenset():
            return f"{name}={sorted(value, key=repr)}"
        case dict():
            return f"{name}={ {key: _Once(each) for key, each in value.items()} }"
        case _:
            return f"{name}={value!r}"


class _Once:
    """A value whose text is computed once for all copied worlds that share it, since it never changes."""

    _said: ClassVar[dict[int, tuple[object, str]]] = {}

    @classmethod
    def forget(cls) -> None:
        """Forget the texts, and with them the values, of earlier worlds."""
        cls._said.clear()

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        value = self._value
        about = getattr(value, "__dataclass_params__", None)
        if not isinstance(value, tuple) and not (about and about.frozen):
            return repr(value)
        known = self._said.get(id(value))
        if known is None:
            known = self._said[id(value)] = value, repr(value)
        return known[1]
