"""The packing problem and its answer, in numbers only."""

from __future__ import annotations

from dataclasses import dataclass

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """`count` things alike. `per_node` is how many of them one node may hold, whatever room it has.

    `groups` are the numbers of the groups it belongs to. `caps` are rules about company: (group, most) means that a
    node which holds any of this item holds at most so many of the group, this item's own counted where they belong.
    """

    size: Vector
    count: int
    per_node: int
    groups: tuple[int, ...] = ()
    caps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Bin:
    """A node that can be bought, any number of times unless its purse limits it.

    `admits` has bit i set when item i may go in. `purse` names the budget that `cost` (a vector of its own units) is
    taken from, -1 for none. Ties between bins are broken by `key`.
    """

    key: str
    room: Vector
    price: float
    admits: int
    purse: int = -1
    cost: Vector = ()


@dataclass(frozen=True, slots=True)
class Node:
    """`repeats` nodes alike: each holds `counts[i]` of item i."""

    bin: Bin
    counts: Vector
    repeats: int


@dataclass(frozen=True, slots=True)
class Packing:
    """`left` counts what found no place. `steps` is the work done, the same on any machine."""

    nodes: tuple[Node, ...]
    left: Vector
    steps: int

    @property
    def price(self) -> float:
        """Sum of all nodes' prices."""
        return sum(node.bin.price * node.repeats for node in self.nodes)
