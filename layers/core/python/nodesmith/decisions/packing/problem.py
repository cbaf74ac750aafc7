"""The packing problem and its answer, in numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum

Vector = tuple[int, ...]
Limits = Mapping[int, Vector]


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

    @property
    def most(self) -> int:
        """How many of it one node may hold by its own rules."""
        return max(0, min([self.per_node, *(most for group, most in self.caps if group in self.groups)]))


@dataclass(frozen=True, slots=True)
class Bin:
    """A node that can be bought, any number of times unless its purse limits it.

    `admits` has bit i set when item i may go in. `limit` names the budget that `cost` (a vector of its own units) is
    taken from, -1 for none. Ties between bins are broken by `key`.
    """

    key: str
    capacity: Vector
    price: float
    admits: int
    limit: int = -1
    cost: Vector = ()


@dataclass(frozen=True, slots=True)
class Node:
    """`repeats` nodes alike. Each holds the pairs of an item's number and how many of it, in order of numbers."""

    bin: Bin
    holds: tuple[tuple[int, int], ...]
    repeats: int


@dataclass(frozen=True, slots=True)
class Packing:
    """`left` counts what found no place, `limits` hold what was not spent.

    No packing of what found a place costs less than `bound`. `steps` is the work done, the same on any machine.
    """

    nodes: tuple[Node, ...]
    left: Vector
    limits: Limits = field(default_factory=dict)
    bound: float = 0.0
    steps: int = 0

    @property
    def price(self) -> float:
        """Sum of all nodes' prices."""
        return fsum(node.bin.price * node.repeats for node in self.nodes)
