"""Improve a plan: cheaper bins for the contents of its nodes, and the items of a few nodes packed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import fsum
from operator import le

from nodesmith.decisions.packing.exact import A_NODE, Cheapest, Choice, exact, transitions
from nodesmith.decisions.packing.problem import Bin, PartialPlan, Vector

_LEAST_SAVING = 1e-9
_MOST_NODES = 200
_Part = tuple[tuple[Bin, Vector], ...]


def downsize(partial: PartialPlan, bins: Sequence[Bin]) -> None:
    """Move the items of each node into the cheapest bin that holds them, also one that its limit pays for in part."""
    ordered = sorted(bins, key=lambda b: (b.price, b.key))
    axes = range(len(bins[0].capacity))
    for _ in range(len(partial.bought)):
        bin_, counts, repeats = partial.give_back(0)
        mask = sum(1 << i for i, n in enumerate(counts) if n)
        size = [
            sum(i.size[axis] * n for i, n in zip(partial.items, counts, strict=True) if n) for axis in axes
        ]
        for candidate in ordered:
            if candidate.price >= bin_.price:
                break
            if not (candidate.admits & mask == mask and all(map(le, size, candidate.capacity))):
                continue
            part = None
            if partial.remaining.affords(candidate) < repeats:
                part = partial.remaining.part(candidate)
                if part is None or part.price >= bin_.price:
                    continue
                partial.buy(part, counts, 1)
                repeats -= 1
            else:
                bin_ = candidate
            break
        partial.buy(bin_, counts, repeats)


def repack(partial: PartialPlan, cheapest: Cheapest, most_transitions: int, most_steps: int) -> None:
    """Repack one, two and three nodes at a time until no such change saves anything, or the steps run out.

    A step is a transition of `exact`. Plans of more than 200 nodes are left as they are: repacking three of so many
    saves too little.
    """
    if sum(repeats for _, _, repeats in partial.bought) > _MOST_NODES:
        return
    tried: set[_Part] = set()
    end = partial.steps + most_steps
    saved = True
    while saved and partial.steps < end:
        saved = False
        for part in _parts(partial):
            held = tuple(map(sum, zip(*(counts for _, counts in part), strict=True)))
            work = transitions(held)
            if part in tried or work > most_transitions:
                continue
            tried.add(part)
            partial.steps += work
            better = exact(cheapest, held)
            if (
                better is not None
                and _price(better) < _price(part) - _LEAST_SAVING
                and _is_paid(partial, part, better)
            ):
                _replace(partial, part, better)
                saved = True
                break
            if partial.steps >= end:
                break


def _parts(partial: PartialPlan) -> Iterator[_Part]:
    kinds: Counter[tuple[Bin, Vector]] = Counter()
    for bin_, counts, repeats in partial.bought:
        kinds[bin_, counts] += repeats
    ordered = sorted(kinds, key=lambda kind: (kind[0].price, kind[0].key, kind[1]))
    several = [kind for kind in ordered for _ in range(min(3, kinds[kind]))]
    for size in (1, 2, 3):
        yield from dict.fromkeys(combinations(several, size))


def _price(choices: Sequence[Choice]) -> float:
    return fsum(bin_.price + A_NODE for bin_, _ in choices)


def _is_paid(partial: PartialPlan, part: _Part, better: Sequence[Choice]) -> bool:
    """Return whether the limits allow the `better` nodes in place of those in `part`."""
    left = {limit: list(amounts) for limit, amounts in partial.remaining.limits.items()}
    for sign, choices in ((1, part), (-1, better)):
        for bin_, _ in choices:
            if bin_.limit in left:
                pairs = zip(left[bin_.limit], bin_.cost, strict=True)
                left[bin_.limit] = [have + sign * cost for have, cost in pairs]
    return all(have >= 0 for bin_, _ in better if bin_.limit in left for have in left[bin_.limit])


def _replace(partial: PartialPlan, part: _Part, better: Sequence[Choice]) -> None:
    for kind in part:
        number = next(n for n, (bin_, counts, _) in enumerate(partial.bought) if (bin_, counts) == kind)
        bin_, counts, repeats = partial.give_back(number)
        partial.buy(bin_, counts, repeats - 1)
    for bin_, counts in better:
        partial.buy(bin_, counts, 1)
