"""The packing problem and its solution, in numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum

Vector = tuple[int, ...]
Limits = Mapping[int, Vector]


@dataclass(frozen=True, slots=True)
class Item:
    """`count` identical items. `per_node` is how many of them one node may hold, whatever its capacity.

    `groups` are the numbers of the groups that the item belongs to. `caps` restrict which items may share a node: a cap
    (group, most) means that a node which holds this item holds at most `most` items of the group, including this item
    if it belongs to the group.
    """

    size: Vector
    count: int
    per_node: int
    groups: tuple[int, ...] = ()
    caps: tuple[tuple[int, int], ...] = ()

    @property
    def most(self) -> int:
        """The number of this item that one node may hold by the item's own rules."""
        return max(0, min([self.per_node, *(most for group, most in self.caps if group in self.groups)]))


@dataclass(frozen=True, slots=True)
class Bin:
    """A node that can be bought, any number of times unless its limit allows fewer.

    Bit i of `admits` is set if item i may go into the bin. `limit` is the number of the limit that each purchase uses
    up by `cost` (a vector in the limit's own units); -1 means none. `key` breaks ties between bins.
    """

    key: str
    capacity: Vector
    price: float
    admits: int
    limit: int = -1
    cost: Vector = ()


@dataclass(frozen=True, slots=True)
class Node:
    """`repeats` identical nodes. `holds` has pairs of an item's number and its count, in order of numbers."""

    bin: Bin
    holds: tuple[tuple[int, int], ...]
    repeats: int


@dataclass(frozen=True, slots=True)
class Packing:
    """The result: the nodes, the count of each item `left` unpacked, and the amounts that remain of the `limits`.

    No packing of the packed items costs less than `bound`. `steps` is the work done, which is the same on any machine.
    """

    nodes: tuple[Node, ...]
    left: Vector
    limits: Limits = field(default_factory=dict)
    bound: float = 0.0
    steps: int = 0

    @property
    def price(self) -> float:
        """Sum of the prices of all nodes."""
        return fsum(node.bin.price * node.repeats for node in self.nodes)
