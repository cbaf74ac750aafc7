"""The rules about sharing a node, for an item pool: which kinds of items may still join a node.

They are evaluated for all kinds at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nodesmith.decisions.packing.problem import Item

_Indices = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_UNLIMITED = 2**31


class Kinds:
    """Items with equal groups and caps are of one kind; `of` is the kind of each item.

    `blocked` marks the kinds that may not join the node in its present state. `touchy` marks the kinds that must be
    added one item at a time: they have caps, or are subject to a cap of something on the node.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        numbers: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], int] = {}
        self.of: _Indices = np.array([numbers.setdefault((i.groups, i.caps), len(numbers)) for i in items])
        self._rules = list(numbers)
        members: dict[int, list[int]] = {}
        cappers: dict[int, list[tuple[int, int]]] = {}
        for kind, (groups, caps) in enumerate(self._rules):
            for group in groups:
                members.setdefault(group, []).append(kind)
            for group, most in caps:
                cappers.setdefault(group, []).append((kind, most - (group in groups)))
        self._members = {group: np.array(kinds) for group, kinds in members.items()}
        self._cappers = {
            group: (np.array([kind for kind, _ in each]), np.array([most for _, most in each]))
            for group, each in cappers.items()
        }
        self._strictest = {group: min(most for _, most in each) for group, each in cappers.items()}
        self._brings_caps: _Bools = np.array([bool(caps) for _, caps in self._rules])
        self._never: _Bools = np.array(
            [any(most < (group in groups) for group, most in caps) for groups, caps in self._rules]
        )
        self.ruled = bool(cappers)
        self.empty()

    def empty(self) -> None:
        """Start an empty node."""
        self._held: dict[int, int] = {}
        self._most: dict[int, int] = {}
        self.blocked, self.touchy = self._never.copy(), self._brings_caps.copy()

    def capacity(self, kind: int) -> int:
        """Return how many more of a kind may join."""
        groups, caps = self._rules[kind]
        spare = [most - self._held.get(group, 0) for group, most in caps if group in groups]
        spare += [self._most[group] - self._held.get(group, 0) for group in groups if group in self._most]
        return 0 if self.blocked[kind] else min(spare, default=_UNLIMITED)

    def add(self, kind: int, count: int) -> None:
        """Add some of a kind."""
        groups, caps = self._rules[kind]
        for group in groups:
            self._held[group] = self._held.get(group, 0) + count
        for group, most in caps:
            self._most[group] = min(most, self._most.get(group, most))
        for group in dict.fromkeys((*groups, *(group for group, _ in caps))):
            self._tell(group)

    def _tell(self, group: int) -> None:
        held, most = self._held.get(group, 0), self._most.get(group)
        if most is not None and group in self._members:
            self.touchy[self._members[group]] = True
            if held >= most:
                self.blocked[self._members[group]] = True
        if held > self._strictest.get(group, held):
            kinds, allowed = self._cappers[group]
            self.blocked[kinds[held > allowed]] = True
