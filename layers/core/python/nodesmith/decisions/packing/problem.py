"""The packing problem, its solution and a plan under way, in numbers only.

`Sharing` tracks how many more items the rules of items allow (see `Item`), and `RemainingLimits` how many more bins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from math import fsum
from operator import gt
from typing import Protocol

Vector = tuple[int, ...]
Limits = Mapping[int, Vector]
UNLIMITED = 2**62
Holds = tuple[tuple[int, int], ...]
_PART, _LEAST_PART = "~", 0.02


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

    If a bin has a `substitute`, the amount of its limit on axis `paid_axis` pays for the bin, and its price is only the
    `dual_cost` of taking that amount from other bins. If less than its cost remains, the amount pays for a part of one
    more bin, and the other part is charged at `unpaid_price`. After that, `substitute` is bought, which has room for
    the same items.
    """

    key: str
    capacity: Vector
    price: float
    admits: int
    limit: int = -1
    cost: Vector = ()
    substitute: Bin | None = field(default=None, compare=False, repr=False)
    paid_axis: int = field(default=0, compare=False, repr=False)
    unpaid_price: float = field(default=0.0, compare=False, repr=False)
    dual_cost: float = field(default=0.0, compare=False, repr=False)

    @property
    def whole_key(self) -> str:
        """The key of the original bin, also if this is the part of it that a limit pays for."""
        return self.key.partition(_PART)[0]


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


class RemainingLimits:
    """The limits, less the amounts spent."""

    def __init__(self, limits: Limits) -> None:
        self.limits: dict[int, Vector] = dict(limits)

    def affords(self, candidate: Bin) -> int:
        """Return how many of a bin its limit allows; UNLIMITED if the bin has no limit.

        If any amount of the limit is exceeded already, it allows none.
        """
        limit = self.limits.get(candidate.limit)
        if limit is None:
            return UNLIMITED
        if any(map(gt, candidate.cost, limit)):
            return 0
        paid = [available // cost for available, cost in zip(limit, candidate.cost, strict=True) if cost]
        return min(paid, default=UNLIMITED)

    def part(self, candidate: Bin) -> Bin | None:
        """Return the part of a bin that its limit pays for; None if `substitute` costs no more, or limits forbid it."""
        instead, limit = candidate.substitute, self.limits.get(candidate.limit)
        if instead is None or limit is None:
            return None
        axis = candidate.paid_axis
        available, cost = limit[axis], candidate.cost
        share = min(1.0, available / cost[axis])
        price = share * candidate.price + (1 - share) * candidate.unpaid_price
        paid = (*cost[:axis], min(available, cost[axis]), *cost[axis + 1 :])
        if share < _LEAST_PART or price >= instead.price or any(map(gt, paid, limit)):
            return None
        key, dual_cost = f"{candidate.key}{_PART}{share:.4f}", share * candidate.dual_cost
        return replace(candidate, key=key, price=price, cost=paid, substitute=None, dual_cost=dual_cost)

    def spend(self, candidate: Bin, number: int) -> None:
        """Charge `number` of a bin to its limit; a negative number gives the amounts back."""
        limit = self.limits.get(candidate.limit)
        if limit is not None:
            self.limits[candidate.limit] = tuple(
                available - number * cost for available, cost in zip(limit, candidate.cost, strict=True)
            )


class Constrained(Protocol):
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

    def capacity(self, item: Constrained, count: int) -> int:
        """Return how many more of an item may be added by the rules, up to `count`."""
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

    def hold(self, item: Constrained, count: int) -> None:
        """Add `count` of an item, without checking the rules."""
        for group in item.groups:
            self.held[group] = self.held.get(group, 0) + count
        for group, most in item.caps:
            self.most[group] = min(most, self.most.get(group, most))

    def add(self, item: Constrained, count: int) -> int:
        """Add as many of an item as the rules allow, up to `count`, and return that number."""
        count = self.capacity(item, count)
        if count:
            self.hold(item, count)
        return count

    def joining(
        self, numbers: Iterable[int], items: Sequence[Item], left: Sequence[int], need: int
    ) -> Iterator[tuple[int, int]]:
        """Add up to `need` of these items from those `left`, as the rules allow; yield each number and its count."""
        for number in numbers:
            item = items[number]
            count = min(need, left[number], item.per_node)
            if item.groups or item.caps:
                count = self.add(item, count)
            if count:
                yield number, count
                need -= count
            if not need:
                break


Bought = tuple[Bin, Vector, int]


class PartialPlan:
    """Bins bought so far, items left to pack, and the remaining limits.

    Each entry of `bought` is a bin, the count of each item that one node holds, and the number of such nodes. `left`
    has the count of each item that is not packed yet, and `remaining` has the limits that are not used up.
    """

    def __init__(self, items: Sequence[Item], limits: Limits, steps: int = 0) -> None:
        self.items = items
        self.bought: list[Bought] = []
        self.left = [item.count for item in items]
        self.remaining = RemainingLimits(limits)
        self.steps = steps

    @property
    def price(self) -> float:
        return fsum(bin_.price * repeats for bin_, _, repeats in self.bought)

    @property
    def rank(self) -> tuple[int, float]:
        """The number of items left, then the price without dual costs. The plan of lower rank is the better one."""
        dual_costs = fsum(bin_.dual_cost * repeats for bin_, _, repeats in self.bought if bin_.dual_cost)
        return sum(self.left), self.price - dual_costs

    def repeats(self, counts: Vector) -> int:
        """Return how many nodes with this pattern the items left can fill."""
        return min(
            [available // count for available, count in zip(self.left, counts, strict=True) if count],
            default=0,
        )

    def buy(self, candidate: Bin, counts: Vector, repeats: int) -> None:
        """Buy up to `repeats` nodes with this pattern, as far as its limit and the items left allow.

        The last node may hold less than the pattern.
        """
        affordable = self.remaining.affords(candidate)
        if affordable < repeats and candidate.substitute is not None:
            self.buy(candidate, counts, affordable)
            part = self.remaining.part(candidate)
            if part is not None:
                self.buy(part, counts, 1)
            self.buy(candidate.substitute, counts, repeats - affordable - (part is not None))
            return
        unbought = min(repeats, affordable)
        while unbought > 0 and any(counts := tuple(map(min, counts, self.left))):
            number = min(unbought, self.repeats(counts))
            self._change(candidate, counts, number)
            self.bought.append((candidate, counts, number))
            unbought -= number

    def give_back(self, number: int) -> Bought:
        """Undo purchase `number` and return it."""
        candidate, counts, repeats = bought = self.bought.pop(number)
        self._change(candidate, counts, -repeats)
        return bought

    def _change(self, candidate: Bin, counts: Vector, number: int) -> None:
        self.remaining.spend(candidate, number)
        self.left = [available - number * count for available, count in zip(self.left, counts, strict=True)]


def holds(counts: Vector) -> Holds:
    """Return a pattern as pairs of item and count, without the items that it does not hold."""
    return tuple(compress(enumerate(counts), counts))
