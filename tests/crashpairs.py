"""Two crashes in one life, at every pair of moments, with no step told twice that is like another.

A telling is a chain of steps of the small world. At each step functions may die at every moment that it brings, and a
second time in what is left of it or later. A world that holds what one held before, with the same messages to come, is
told no further: what became of that one becomes of this one, and so it is with the crashes that may still come. So
some hundred thousand pairs take minutes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.crashes import ENDS, Story, allowed, violations
from tests.passages import Death, Node, Passages
from tests.world import Boundaries


@dataclass(frozen=True, slots=True)
class EventDeduplication:
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
    """steps that had to be told for that, because they were not like others"""
    broken: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """what did not hold, by the calls at which functions died"""
    _known: tuple[
        dict[Node, EventDeduplication], dict[Node, EventDeduplication], dict[Node, EventDeduplication]
    ] = field(default_factory=lambda: ({}, {}, {}))
    """by how many crashes may still come, and the world"""

    def tell(self) -> Pairs:
        """Tell them all."""
        world = self.story.begun(Boundaries())
        world.observe()
        ways = Passages(world, partial(violations, most=self.most, disturbed=2))
        self._live(ways, ways.begun, 2, (), _chosen(ways, self.sample) if self.sample else None)
        self.told = ways.told
        return self

    def _live(
        self, ways: Passages, node: Node, crashes: int, died: tuple[str, ...], chosen: Collection[int] | None
    ) -> EventDeduplication:
        """Return what becomes of a world in which functions may still die so many times."""
        known, path, number = self._known[crashes], list[tuple[Node, int]](), 0
        while (found := known.get(node)) is None:
            broken = ways.ended(node)
            if broken is not None:
                found = EventDeduplication(0, broken)
                break
            after, passed = ways.go(node, last=not crashes)
            path.append((node, passed.moments))
            for death in passed.deaths if crashes else ():
                if chosen is None or number in chosen:
                    self._die(ways, node, (), death, crashes, died)
                number += 1
            node = after
        if found.broken:
            self.broken[died] = found.broken
        return _kept(path, found, known)

    def _die(
        self,
        ways: Passages,
        node: Node,
        fatal: tuple[int, ...],
        death: Death,
        crashes: int,
        died: tuple[str, ...],
    ) -> None:
        """Die there; the second time in what is left of that step or later."""
        fatal, died, left = (*fatal, death.moment), (*died, death.where), crashes - 1
        after, passed = ways.go(node, fatal)
        for second in passed.deaths if left else ():
            self._die(ways, node, fatal, second, left, died)
        told = self._live(ways, after, left, died, None)
        if left:
            self.firsts += death.alike
            self.pairs += death.alike * (passed.moments + told.moments)


def _chosen(ways: Passages, sample: int) -> frozenset[int]:
    """Choose first crashes by number, over the whole of the undisturbed life."""
    node, count = ways.begun, 0
    while ways.ended(node) is None:
        node, passed = ways.go(node)
        count += len(passed.deaths)
    return frozenset(Random(count).sample(range(count), min(sample, count)))  # noqa: S311


@dataclass(frozen=True, slots=True)
class PairReport:
    """Over all stories of a node's end: pairs of moments, steps told for them, promises that did not hold."""

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


def _kept(
    path: list[tuple[Node, int]], end: EventDeduplication, known: dict[Node, EventDeduplication]
) -> EventDeduplication:
    """Remember what became of every world on the path; give it of the first."""
    for node, crossed in reversed(path):
        end = known[node] = EventDeduplication(end.moments + crossed, end.broken)
    return end
