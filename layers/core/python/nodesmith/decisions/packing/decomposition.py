"""Decompose a problem: merge identical items, and separate items that can never share a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nodesmith.decisions.packing.problem import Bin, Item


@dataclass(frozen=True, slots=True)
class Part:
    """Items and bins that are independent of those of other parts, except for limits.

    `members[i]` are the numbers, in the whole problem, of the items that item i of the part represents.
    """

    items: tuple[Item, ...]
    bins: tuple[Bin, ...]
    members: tuple[tuple[int, ...], ...]


def parts(items: Sequence[Item], bins: Sequence[Bin]) -> list[Part]:
    """Return the parts, ordered by their first items. Items that no bin admits are in none."""
    masks = sorted({b.admits for b in bins if b.admits})
    signatures = admitted_by(len(items), masks)
    found: dict[_Class, list[int]] = {}
    for number, item in enumerate(items):
        if item.count and "1" in signatures[number]:
            limited = number if item.per_node < item.count else -1  # unique, so that it is never merged
            alike = item.size, limited, item.groups, item.caps
            found.setdefault((signatures[number], alike), []).append(number)
    return [_part(part, items, bins, masks) for part in _joined(found)]


def admitted_by(number_of_items: int, masks: Sequence[int]) -> list[tuple[str, ...]]:
    """Return for each item, mask by mask, whether the mask admits it: "1" or "0".

    Items with equal results may go into the same bins.
    """
    spelled = [f"{mask & ((1 << number_of_items) - 1):0{number_of_items}b}"[::-1] for mask in masks]
    return list(zip(*spelled, strict=True)) if spelled else [()] * number_of_items


_Class = tuple[tuple[str, ...], tuple[object, ...]]
_Classes = list[tuple[tuple[str, ...], list[int]]]


def _joined(classes: dict[_Class, list[int]]) -> list[_Classes]:
    """Join the classes of items that some mask admits together."""
    by_signature: dict[tuple[str, ...], _Classes] = {}
    for (signature, _), members in classes.items():
        by_signature.setdefault(signature, []).append((signature, members))
    joined: list[tuple[int, _Classes]] = []
    for signature, group in by_signature.items():
        bits, together = int("".join(signature), 2), list(group)
        apart = []
        for other_bits, other in joined:
            if other_bits & bits:
                bits, together = bits | other_bits, other + together
            else:
                apart.append((other_bits, other))
        joined = [*apart, (bits, together)]
    ordered = [sorted(part, key=lambda one: one[1]) for _, part in joined]
    return sorted(ordered, key=lambda part: part[0][1])


def _part(classes: _Classes, items: Sequence[Item], bins: Sequence[Bin], masks: Sequence[int]) -> Part:
    members = tuple(tuple(numbers) for _, numbers in classes)
    merged = tuple(_merged([items[n] for n in numbers]) for numbers in members)
    local = {
        mask: int("".join(signature[place] for signature, _ in classes)[::-1], 2)
        for place, mask in enumerate(masks)
    }
    mine = tuple(_admitting(local[b.admits], b) for b in bins if local.get(b.admits))
    return Part(merged, mine, members)


def _admitting(admits: int, one: Bin) -> Bin:
    return one if one.admits == admits else Bin(one.key, one.capacity, one.price, admits, one.limit, one.cost)


def _merged(alike: Sequence[Item]) -> Item:
    """Merge identical items into one. If there are several, none of them can reach its own limit per node."""
    if len(alike) == 1:
        return alike[0]
    count = sum(item.count for item in alike)
    return replace(alike[0], count=count, per_node=count)
