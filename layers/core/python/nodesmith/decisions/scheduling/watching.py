"""What pending pods ask about other pods' domains: whose place must therefore be settled, and who is placed first."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.decisions.scheduling.labelsets import LabelSets
from nodesmith.decisions.scheduling.topology import attractions, aversions
from nodesmith.model.labels import HOSTNAME
from nodesmith.model.shapes import Shape, Spread

FOLLOWS = 2
"""the turn of shapes that must be where others are"""


class Watch:
    """By topology key, the label sets that hard spreads count, that affinity follows and anti-affinity shuns."""

    def __init__(self, shapes: Iterable[Shape], sets: LabelSets) -> None:
        self._sets = sets
        self._counted: dict[str, dict[int, None]] = {}
        self._followed: dict[str, int] = {}
        self._shunned: dict[str, int] = {}
        for shape in shapes:
            for spread in keyed_spreads(shape):
                selected = sets.selected(spread.selector, frozenset((shape.namespace,)))
                if selected:
                    self._counted.setdefault(spread.topology_key, {})[selected] = None
            for term in (*aversions(shape), *attractions(shape)):
                asked = self._shunned if term.anti else self._followed
                selected = sets.selected(term.selector, term.namespaces)
                asked[term.topology_key] = asked.get(term.topology_key, 0) | selected

    def counted_by(self, shape: Shape) -> list[tuple[str, int]]:
        """Give the spreads that count pods of a shape: key, and all label sets that are counted together."""
        number = self._sets.number(shape)
        return [
            (key, selected)
            for key, all_selected in sorted(self._counted.items())
            for selected in all_selected
            if selected >> number & 1
        ]

    def asked_over(self, shape: Shape) -> list[str]:
        """Give the keys over which affinity or anti-affinity of pods yet to be placed looks at pods of a shape."""
        later = self._followed_over(shape) if self.turn(shape) > FOLLOWS else self._asked_over(shape)
        return sorted(set(later) - {HOSTNAME})

    def turn(self, shape: Shape) -> int:
        """Say when a shape is placed: those that others count or follow, those that spread or shun, those that follow.

        Last are those that nobody counts or follows and who ask about nobody: they take any room. Of those that are
        only shunned, who has no choice comes first.
        """
        if attractions(shape):
            return FOLLOWS
        if keyed_spreads(shape) or aversions(shape):
            return 1
        settled = any(key in term for key in self._asked_over(shape) for term in shape.terms)
        return 0 if settled or self.counted_by(shape) or self._followed_over(shape) else 3

    def _followed_over(self, shape: Shape) -> list[str]:
        number = self._sets.number(shape)
        return [key for key, selected in self._followed.items() if selected >> number & 1]

    def _asked_over(self, shape: Shape) -> list[str]:
        number = self._sets.number(shape)
        shunned = [key for key, selected in self._shunned.items() if selected >> number & 1]
        return [*self._followed_over(shape), *shunned]


def keyed_spreads(shape: Shape) -> list[Spread]:
    """Give the hard spreads over anything but the hostname (for which see `neighbours`)."""
    return [s for s in shape.spreads if s.hard and s.topology_key != HOSTNAME]
