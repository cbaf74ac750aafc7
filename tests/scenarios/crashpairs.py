"""Two crashes in one run, at every pair of moments, without repeating equivalent steps.

A run is a chain of steps of the small world. At each step, functions may die at every moment in it, and a second time
in the rest of that step or later. A world with the same content and the same pending messages as an earlier one is not
continued: it has the same outcome, and the same for further crashes. That reduces some hundred thousand pairs to
minutes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.scenarios.crashes import ENDS, Story, allowed, violations
from tests.smallworld.passages import Death, Node, Passages
from tests.smallworld.world import Boundaries


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a world: how many moments remain at which it can die, and the violations in the end."""

    moments: int
    broken: tuple[str, ...]


@dataclass(slots=True)
class Pairs:
    """All runs of one story with up to two crashes. `sample` limits the first crashes; 0 means all."""

    story: Story
    most: int
    """How many instances may ever run."""
    sample: int = 0
    firsts: int = 0
    """The number of moments at which a function was killed once."""
    pairs: int = 0
    """The number of pairs of moments at which functions were killed."""
    reported: int = 0
    """The number of steps that had to be executed, because no equivalent one existed."""
    broken: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """The violations, by the calls at which functions died."""
    _known: tuple[dict[Node, Outcome], dict[Node, Outcome], dict[Node, Outcome]] = field(
        default_factory=lambda: ({}, {}, {})
    )
    """The outcomes by number of remaining crashes, and by world."""

    def enumerate(self) -> Pairs:
        """Run them all."""
        world = self.story.begun(Boundaries())
        world.observe()
        ways = Passages(world, partial(violations, most=self.most, disturbed=2))
        self._live(ways, ways.begun, 2, (), _chosen(ways, self.sample) if self.sample else None)
        self.reported = ways.executed
        return self

    def _live(
        self, ways: Passages, node: Node, crashes: int, died: tuple[str, ...], chosen: Collection[int] | None
    ) -> Outcome:
        """Return the outcome of a world in which `crashes` more crashes may come."""
        known, path, number = self._known[crashes], list[tuple[Node, int]](), 0
        while (found := known.get(node)) is None:
            broken = ways.ended(node)
            if broken is not None:
                found = Outcome(0, broken)
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
        """Die at this moment; the second time in the rest of that step or later."""
        fatal, died, left = (*fatal, death.moment), (*died, death.where), crashes - 1
        after, passed = ways.go(node, fatal)
        for second in passed.deaths if left else ():
            self._die(ways, node, fatal, second, left, died)
        reported = self._live(ways, after, left, died, None)
        if left:
            self.firsts += death.alike
            self.pairs += death.alike * (passed.moments + reported.moments)


def _chosen(ways: Passages, sample: int) -> frozenset[int]:
    """Choose first crashes by number, over the whole undisturbed run."""
    node, count = ways.begun, 0
    while ways.ended(node) is None:
        node, passed = ways.go(node)
        count += len(passed.deaths)
    return frozenset(Random(count).sample(range(count), min(sample, count)))  # noqa: S311


@dataclass(frozen=True, slots=True)
class PairReport:
    """Over all stories of a node's end: pairs of moments, executed steps, and violations."""

    pairs: int
    reported: int
    violations: int


def pair_report(sample: int = 0) -> PairReport:
    """Kill twice in the story of each node that ends, at every pair of moments; `sample` limits the first crashes."""
    found = [pairs_of(story, sample) for story in ENDS]
    broken = sum(len(faults) for each in found for faults in each.broken.values())
    return PairReport(sum(each.pairs for each in found), sum(each.reported for each in found), broken)


def pairs_of(story: Story, sample: int = 0) -> Pairs:
    """Run a story with every pair of crashes, or with `sample` first ones."""
    return Pairs(story, allowed(story), sample).enumerate()


def _kept(path: list[tuple[Node, int]], end: Outcome, known: dict[Node, Outcome]) -> Outcome:
    """Record the outcome of every world on the path; return that of the first."""
    for node, crossed in reversed(path):
        end = known[node] = Outcome(end.moments + crossed, end.broken)
    return end
