"""Which pods a selector selects, answered for all shapes at once.

Shapes are numbered by what selectors can distinguish: their namespace and the labels that some selector names. A set of
numbers is an integer with bit i for number i, so a selector is evaluated once and then costs one bit test per shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nodesmith.model.apimachinery.requirements import Requirement, Selector
from nodesmith.model.kubernetes.pods import Shape

Namespaces = frozenset[str] | None
"""The namespaces that a term applies to; None means all."""


class LabelSets:
    """The label sets of some shapes. It only knows the shapes given at the start."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        shapes = list(dict.fromkeys(shapes))
        keys = sorted({key for shape in shapes for one in selectors_of(shape) for key in one.requirements})
        self._numbers: dict[tuple[str | None, ...], int] = {}
        self._number_of: dict[Shape, int] = {}
        for shape in shapes:
            told_apart = (shape.namespace, *(shape.labels.get(key) for key in keys))
            self._number_of[shape] = self._numbers.setdefault(told_apart, len(self._numbers))
        self._everything = (1 << len(self._numbers)) - 1
        self._namespaces: dict[str | None, int] = {}
        self._valued: dict[str, dict[str, int]] = {key: {} for key in keys}
        for values, number in self._numbers.items():
            self._namespaces[values[0]] = self._namespaces.get(values[0], 0) | 1 << number
            for key, value in zip(keys, values[1:], strict=True):
                if value is not None:
                    self._valued[key][value] = self._valued[key].get(value, 0) | 1 << number
        self._labelled = {key: _union(valued.values()) for key, valued in self._valued.items()}
        self._selected: dict[tuple[str, Namespaces], int] = {}

    @property
    def count(self) -> int:
        """How many label sets there are."""
        return len(self._numbers)

    def number(self, shape: Shape) -> int:
        """Return the number of a shape's label set."""
        return self._number_of[shape]

    def liken(self, shape: Shape, other: Shape) -> None:
        """Register a shape with the label set of another, whose labels and namespace it shares."""
        self._number_of[shape] = self._number_of[other]

    def selected(self, selector: Selector | None, namespaces: Namespaces) -> int:
        """Return the label sets, as bits, that a selector selects in these namespaces. No selector selects nothing."""
        if selector is None:
            return 0
        key = selector.key, namespaces
        if key not in self._selected:
            found = self._everything if namespaces is None else self._within(namespaces)
            for requirement in selector.requirements.values():
                found &= self._meeting(requirement)
            self._selected[key] = found
        return self._selected[key]

    def selects(self, selector: Selector | None, namespaces: Namespaces, shape: Shape) -> bool:
        """Return whether a selector selects pods of a shape."""
        return self.selected(selector, namespaces) >> self._number_of[shape] & 1 == 1

    def _within(self, namespaces: frozenset[str]) -> int:
        return _union(self._namespaces.get(namespace, 0) for namespace in namespaces)

    def _meeting(self, requirement: Requirement) -> int:
        valued, labelled = self._valued[requirement.key], self._labelled[requirement.key]
        absent = self._everything & ~labelled if requirement.tolerates_absence else 0
        if requirement.gte is not None or requirement.lte is not None:
            return absent | _union(bits for value, bits in valued.items() if requirement.allows(value))
        named = _union(valued.get(value, 0) for value in requirement.values)
        return absent | (labelled & ~named if requirement.complement else named)


def bits(numbers: int) -> Iterator[int]:
    """Yield the numbers in a set, ascending."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def selectors_of(shape: Shape) -> list[Selector]:
    """Return the selectors of all constraints of a shape."""
    found = [*(spread.selector for spread in shape.spreads), *(term.selector for term in shape.affinities)]
    return [selector for selector in found if selector is not None]


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found
