"""Cuts: what no node may hold, because too few types could hold it for the NodePool's minValues.

A node that holds at least as much of every resource, and pods of the same kinds, would be refused again. So a bin is
replaced by several bins that each have less of one resource or exclude one of the kinds; no other node is lost. A
refused node teaches most if it is first reduced to the least that would still be refused: often an amount of one
resource, whichever pods request it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import le

from nodesmith.decisions.packing import Bin, Node, Vector, undominated
from nodesmith.decisions.provisioning.purchase.flexibility import has_choice
from nodesmith.decisions.provisioning.purchase.packingproblem import Offer, PackingProblem
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.kubernetes.pods import Shape

_Kind = tuple[Shape, FrozenMap[str]]


@dataclass(frozen=True, slots=True)
class Cut:
    """What was refused: pods of some kinds with `size` together, by resource, from a NodePool with a capacity type."""

    nodepool: str
    capacity_type: str
    size: FrozenMap[int]
    kinds: frozenset[_Kind]
    by_limits: bool = False
    """More types would serve if the NodePool's limits allowed them: it is refused now, but not in every purchase."""

    def concerns(self, offer: Offer) -> bool:
        """Return whether an offer is of the same NodePool and capacity type."""
        return (offer.template.name, offer.offering.capacity_type) == (self.nodepool, self.capacity_type)


def cut(offered: PackingProblem, node: Node) -> Cut:
    """Return the cut that a refused node teaches."""
    offer, bits = offered.offers[node.bin.key], sum(1 << i for i, _ in node.holds)
    size = tuple(
        sum(offered.items[i].size[axis] * number for i, number in node.holds)
        for axis in range(len(offered.dimensions))
    )
    by_limits = has_choice(offered.offers_by_template[offer.template.name], offer, bits, size)
    if not by_limits:
        bits, size = _least(offered, offer, bits, size)
    kinds = frozenset(_kind(demand) for i, demand in enumerate(offered.demands) if bits >> i & 1)
    amounts = FrozenMap(dict(zip(offered.dimensions, size, strict=True)))
    return Cut(offer.template.name, offer.offering.capacity_type, amounts, kinds, by_limits)


def _least(offered: PackingProblem, offer: Offer, bits: int, size: Vector) -> tuple[int, Vector]:
    """Return as few kinds, and as little of each resource, as would still be refused."""
    template_offers = offered.offers_by_template[offer.template.name]
    for index in range(bits.bit_length()):
        fewer = bits & ~(1 << index)
        if fewer != bits and not has_choice(template_offers, offer, fewer, size):
            bits = fewer
    for axis, amount in enumerate(size):
        steps = sorted(
            {0, *(room[axis] + 1 for room in template_offers.rooms if room[axis] < amount), amount}
        )

        def has_choice_with(less: int, axis: int = axis, so_far: Vector = size) -> bool:
            return has_choice(template_offers, offer, bits, (*so_far[:axis], less, *so_far[axis + 1 :]))

        least = steps[bisect_left(steps, True, key=lambda less: not has_choice_with(less))]
        size = (*size[:axis], least, *size[axis + 1 :])
    return bits, size


def without(offered: PackingProblem, cuts: Iterable[Cut]) -> PackingProblem:
    """Return the packing problem with bins that cannot hold anything that was cut."""
    offers, bins = dict(offered.offers), list(offered.bins)
    for number, one in enumerate(cuts):
        bits = _bits(one, offered.demands)
        size = tuple(one.size.get(name, 0) for name in offered.dimensions)
        found: list[Bin] = []
        for each in bins:
            offer = offers[each.key]
            if (
                bits is None
                or not one.concerns(offer)
                or bits & ~each.admits
                or not all(map(le, size, each.capacity))
            ):
                found.append(each)
                continue
            parts = [
                replace(part, key=f"{each.key}#{number}.{place}")
                for place, part in enumerate(_parts(each, size, bits))
            ]
            offers.update((part.key, offer) for part in parts)
            found += parts
        if found != bins:
            bins = undominated(found)
    return replace(offered, bins=tuple(bins), offers=offers)


def _parts(whole: Bin, size: Vector, bits: int) -> Iterator[Bin]:
    for axis, amount in enumerate(size):
        if amount:
            yield replace(whole, capacity=(*whole.capacity[:axis], amount - 1, *whole.capacity[axis + 1 :]))
    for index in range(bits.bit_length()):
        if bits >> index & 1 and whole.admits != 1 << index:
            yield replace(whole, admits=whole.admits & ~(1 << index))


def _bits(one: Cut, demands: Sequence[Demand]) -> int | None:
    """Return the kinds of a cut as bits of demands; None if one of them is no longer demanded."""
    found = [index for index, demand in enumerate(demands) if _kind(demand) in one.kinds]
    return sum(1 << index for index in found) if len(found) == len(one.kinds) else None


def _kind(demand: Demand) -> _Kind:
    return demand.shape, demand.pins
