"""The rules about who may share a node: what caps forbid (see `Item`), kept while a node is filled."""

from __future__ import annotations

from typing import Protocol


class Ruled(Protocol):
    """Whatever belongs to groups and brings caps."""

    @property
    def groups(self) -> tuple[int, ...]: ...

    @property
    def caps(self) -> tuple[tuple[int, int], ...]: ...


class Sharing:
    """What one node holds of each group, and the least that anything on it allows of each (`most`)."""

    __slots__ = ("held", "most")

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.most: dict[int, int] = {}

    def capacity(self, item: Ruled, count: int) -> int:
        """Return how many of so many more of an item the rules allow."""
        if count <= 0:
            return 0
        for group, most in item.caps:
            spare = most - self.held.get(group, 0)
            if group in item.groups:
                count = min(count, spare)
            elif spare < 0:
                return 0
        for group in item.groups:
            allowed = self.most.get(group)
            if allowed is not None:
                count = min(count, allowed - self.held.get(group, 0))
        return max(0, count)

    def hold(self, item: Ruled, count: int) -> None:
        """Put so many of an item in, whatever the rules say."""
        for group in item.groups:
            self.held[group] = self.held.get(group, 0) + count
        for group, most in item.caps:
            self.most[group] = min(most, self.most.get(group, most))

    def add(self, item: Ruled, count: int) -> int:
        """Put as many of so many of an item in as the rules allow, and tell how many these were."""
        count = self.capacity(item, count)
        if count:
            self.hold(item, count)
        return count
