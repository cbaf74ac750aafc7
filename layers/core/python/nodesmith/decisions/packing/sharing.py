"""The rules about which items may share a node: what caps forbid (see `Item`), tracked while a node is filled."""

from __future__ import annotations

from typing import Protocol


class Ruled(Protocol):
    """Anything that has groups and caps."""

    @property
    def groups(self) -> tuple[int, ...]: ...

    @property
    def caps(self) -> tuple[tuple[int, int], ...]: ...


class Sharing:
    """How many items of each group one node holds, and the smallest cap on each group by any item on it (`most`)."""

    __slots__ = ("held", "most")

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.most: dict[int, int] = {}

    def capacity(self, item: Ruled, count: int) -> int:
        """Return how many more of an item the rules allow, up to `count`."""
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
        """Add `count` of an item, without checking the rules."""
        for group in item.groups:
            self.held[group] = self.held.get(group, 0) + count
        for group, most in item.caps:
            self.most[group] = min(most, self.most.get(group, most))

    def add(self, item: Ruled, count: int) -> int:
        """Add as many of an item as the rules allow, up to `count`, and return that number."""
        count = self.capacity(item, count)
        if count:
            self.hold(item, count)
        return count
