"""The rules about who may share a node: what `Item.caps` forbids, kept while a node is filled."""

from __future__ import annotations

from nodesmith.decisions.packing.problem import Item


class Sharing:
    """What one node holds of each group, and the least that any item on it allows of each."""

    __slots__ = ("_held", "_most")

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._most: dict[int, int] = {}

    def room(self, item: Item, count: int) -> int:
        """Tell how many of so many more of an item the rules allow."""
        if count <= 0:
            return 0
        for group, most in item.caps:
            spare = most - self._held.get(group, 0)
            if group in item.groups:
                count = min(count, spare)
            elif spare < 0:
                return 0
        for group in item.groups:
            allowed = self._most.get(group)
            if allowed is not None:
                count = min(count, allowed - self._held.get(group, 0))
        return max(0, count)

    def add(self, item: Item, count: int) -> int:
        """Put as many of so many of an item in as the rules allow, and tell how many these were."""
        count = self.room(item, count)
        if count:
            for group in item.groups:
                self._held[group] = self._held.get(group, 0) + count
            for group, most in item.caps:
                self._most[group] = min(most, self._most.get(group, most))
        return count
