"""Two crashes in one life, at every pair of moments: told from where lives part, and no further than they differ.

A telling is a chain of steps of the small world. At each step the world is copied for every crash that the step may
bring. A world that is in every respect like one that was told before is told no further: what became of that one
becomes of this one, and so it is with the crashes that may still come. So some hundred thousand pairs take minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any

from nodesmith.settings import snapshot_key
from tests import builders
from tests.branches import copied
from tests.crashes import ENDS, Story, allowed, violations
from tests.world import PATIENCE, Boundaries, World

READS = frozenset(
    {
        "FakeBlobs.get",
        "FakeCloud.cluster_info",
        "FakeCloud.instances_of",
        "FakeCloud.living",
        "FakeCloud.notices",
        "FakeCloud.owned",
        "FakeCloud.owned_instances",
        "FakeCloud.resolve",
        "FakeStore.known",
        "FakeStore.learned",
        "FakeStore.load",
    }
)
"""Calls that change nothing: to die before or after one of them is the same."""
_HISTORY = frozenset({"calls", "events", "decisions", "sent", "puts"})
"""What ports note for tests to look at, and no function reads."""
_NO_STATE = frozenset({"boundaries", "messages", "memory", "concerns", "runs", "_dice", "_seen"})
_PORTS = ("store", "cloud", "cluster", "blobs", "hints")


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a world: the moments at which it can still die from here on, and what does not hold in the end."""

    moments: int
    broken: tuple[str, ...]


@dataclass(slots=True)
class Pairs:
    """All lives of one story with up to two crashes. `sample` of the first crashes are looked at, all if it is 0."""

    story: Story
    most: int
    """instances that may ever run"""
    sample: int = 0
    firsts: int = 0
    """moments at which a function was killed once"""
    pairs: int = 0
    """pairs of moments at which it was killed"""
    told: int = 0
    """lives that had to be told for that, because they were not like others"""
    broken: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """what did not hold, by the calls at which functions died"""
    _known: tuple[dict[bytes, Told], dict[bytes, Told], dict[bytes, Told]] = field(
        default_factory=lambda: ({}, {}, {})
    )
    """by how many crashes may still come, and the world"""

    def tell(self) -> Pairs:
        """Tell them all."""
        world = self.story.begun(Boundaries())
        world.observe()
        chosen = self._chosen(world) if self.sample else None
        self._live(world, 2, (), chosen)
        return self

    def _chosen(self, world: World) -> frozenset[int]:
        """Choose first crashes by number, over the whole of the undisturbed life."""
        there, count = copied(world), 0
        while _goes_on(there):
            count += len(list(deaths(step(there))))
        return frozenset(Random(self.story.name).sample(range(count), min(self.sample, count)))  # noqa: S311

    def _live(self, world: World, crashes: int, died: tuple[str, ...], chosen: frozenset[int] | None) -> Told:
        """Tell what becomes of a world in which functions may still die so many times."""
        known, path, number = self._known[crashes], [], 0
        found = None
        while found is None:
            key = digest(world)
            found = known.get(key)
            if found is None and not _goes_on(world):
                found = Told(0, tuple(violations(world, self.most)))
                path.append((key, 0))
            if found is not None:
                break
            before = copied(world) if crashes else world
            crossed = step(world)
            path.append((key, len(crossed)))
            for moment, alike in deaths(crossed) if crashes else ():
                number += 1
                if chosen is not None and number - 1 not in chosen:
                    continue
                self._die(before, moment, crossed[moment - 1][0], alike, crashes, died)
        if found.broken:
            self.broken[died] = found.broken
        return _kept(path, found, known)

    def _die(
        self, before: World, moment: int, where: str, alike: int, crashes: int, died: tuple[str, ...]
    ) -> None:
        world = copied(before)
        world.boundaries.fatal = frozenset({moment})
        step(world)
        world.boundaries.fatal = frozenset()
        self.told += 1
        after = self._live(world, crashes - 1, (*died, where), None)
        if crashes == 2:
            self.firsts += alike
            self.pairs += alike * after.moments


@dataclass(frozen=True, slots=True)
class PairReport:
    """Over all stories of a node's end: pairs of moments, lives that were told for them, promises that did not hold."""

    pairs: int
    told: int
    violations: int


def pair_report(sample: int = 0) -> PairReport:
    """Kill twice in the life of each node that ends, at every pair of moments; `sample` limits the first crashes."""
    found = [told_of(story, sample) for story in ENDS]
    broken = sum(len(faults) for each in found for faults in each.broken.values())
    return PairReport(sum(each.pairs for each in found), sum(each.told for each in found), broken)


def told_of(story: Story, sample: int = 0) -> Pairs:
    """Tell a story with every pair of crashes, or with `sample` first ones."""
    return Pairs(story, allowed(story, story.told()), sample).tell()


def _kept(path: list[tuple[bytes, int]], end: Told, known: dict[bytes, Told]) -> Told:
    """Remember what became of every world on the path; give it of the first."""
    for key, crossed in reversed(path):
        end = known[key] = Told(end.moments + crossed, end.broken)
    return end


def _goes_on(world: World) -> bool:
    return world.now < builders.NOW + PATIENCE and not world.is_settled()


def step(world: World) -> list[tuple[str, object]]:
    """Let one step pass; give the moments before and after each call that it crossed, in order, each with its run."""
    boundaries = world.boundaries
    boundaries.passed = 0
    boundaries.moments.clear()
    boundaries.look = partial(getattr, world, "runs")
    world.step()
    return list(boundaries.moments)


def deaths(crossed: Sequence[tuple[str, object]]) -> Iterator[tuple[int, int]]:
    """Give the moments (from 1) at which to die makes a difference, and how many moments each stands for.

    To die after a call is to die before the next one of the same run; calls that read change nothing.
    """
    first, last_run = 0, None
    for number, (where, run) in enumerate(crossed, start=1):
        when, _, call = where.partition(" ")
        if run != last_run or (when == "after" and call not in READS):
            if first:
                yield first, number - first
            first, last_run = number, run
    if first:
        yield first, len(crossed) + 1 - first


def digest(world: World) -> bytes:
    """Give what tells a world from others: all that time, functions and the world itself go by."""
    held = {name: value for name, value in vars(world).items() if name not in _NO_STATE}
    parts = [_written(name, held.pop(name)) for name in _PORTS]
    parts += [_said(name, value) for name, value in sorted(held.items()) if not callable(value)]
    return blake2b("\n".join(parts).encode(), digest_size=16).digest()


def _written(name: str, port: Any) -> str:
    kept = [f.name for f in fields(port) if f.name not in _HISTORY]
    values = {each: getattr(port, each) for each in kept}
    if name == "blobs":  # a snapshot says what the cluster shows, records what was decided
        shown = snapshot_key(builders.CLUSTER)
        values["objects"] = {
            key: data for key, data in port.objects.items() if key != shown and "/decisions/" not in key
        }
    return "\n".join(_said(f"{name}.{each}", value) for each, value in values.items() if not callable(value))


def _said(name: str, value: object) -> str:
    """Give a value's name and what it is; two sets with the same members may go through them in different orders."""
    return f"{name}={sorted(value, key=repr) if isinstance(value, set | frozenset) else value!r}"
