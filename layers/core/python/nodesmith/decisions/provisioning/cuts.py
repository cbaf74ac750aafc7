"""Cuts: what no node may hold, because too few types could hold it for the NodePool's minValues.

Whoever holds as much again of every resource, and pods of the same kinds, would be refused again. So a bin is taken
for several that each have less of one resource, or do without one of these kinds: nothing else is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import le

from nodesmith.decisions.packing import Bin, Node, Vector, undominated
from nodesmith.decisions.provisioning.market import Market, Ware
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.model.frozen import FrozenMap
from nodesmith.model.shapes import Shape

_Kind = tuple[Shape, FrozenMap[str]]


@dataclass(frozen=True, slots=True)
class Cut:
    """What was refused: pods of some kinds, `size` together by name of resource, bought of a NodePool one way."""

    nodepool: str
    capacity_type: str
    size: FrozenMap[int]
    kinds: frozenset[_Kind]

    def concerns(self, ware: Ware) -> bool:
        """Tell whether a node would be bought the same way."""
        return (ware.template.name, ware.offering.capacity_type) == (self.nodepool, self.capacity_type)


def cut(offered: Market, node: Node) -> Cut:
    """Give what is learned when a node is refused."""
    ware, held = offered.wares[node.bin.key], [(offered.items[i], n) for i, n in node.holds]
    amounts = {
        name: sum(item.size[axis] * number for item, number in held)
        for axis, name in enumerate(offered.dimensions)
    }
    kinds = frozenset(_kind(offered.demands[i]) for i, _ in node.holds)
    return Cut(ware.template.name, ware.offering.capacity_type, FrozenMap(amounts), kinds)


def without(offered: Market, cuts: Iterable[Cut]) -> Market:
    """Give a market whose bins hold nothing of what was cut."""
    wares, bins = dict(offered.wares), list(offered.bins)
    for number, one in enumerate(cuts):
        bits = _bits(one, offered.demands)
        size = tuple(one.size.get(name, 0) for name in offered.dimensions)
        found: list[Bin] = []
        for each in bins:
            ware = wares[each.key]
            if one.concerns(ware) and bits and not bits & ~each.admits and all(map(le, size, each.room)):
                parts = [
                    replace(part, key=f"{each.key}#{number}.{place}")
                    for place, part in enumerate(_parts(each, size, bits))
                ]
                wares.update((part.key, ware) for part in parts)
                found += parts
            else:
                found.append(each)
        bins = undominated(found)
    return replace(offered, bins=tuple(bins), wares=wares)


def _parts(whole: Bin, size: Vector, bits: int) -> Iterator[Bin]:
    for axis, amount in enumerate(size):
        if amount:
            yield replace(whole, room=(*whole.room[:axis], amount - 1, *whole.room[axis + 1 :]))
    for index in range(bits.bit_length()):
        if bits >> index & 1 and whole.admits != 1 << index:
            yield replace(whole, admits=whole.admits & ~(1 << index))


def _bits(one: Cut, demands: Sequence[Demand]) -> int:
    """Give the kinds of a cut as bits of demands, none where one of them is no longer asked for."""
    found = [index for index, demand in enumerate(demands) if _kind(demand) in one.kinds]
    return sum(1 << index for index in found) if len(found) == len(one.kinds) else 0


def _kind(demand: Demand) -> _Kind:
    return demand.shape, demand.pins
