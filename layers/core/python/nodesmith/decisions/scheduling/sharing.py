"""Which demands may share a new node, written as numbers for the packing: groups and caps.

To the rules of `neighbours` come labels that a NodePool leaves open: a node has one value of each, so demands that ask
for different things of one do not go together. That is told bit by bit of the wish's number: whoever has a 1 shares
with nobody who has a 0 there, which takes two groups a bit instead of one for every two wishes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.neighbours import Neighbours
from nodesmith.decisions.scheduling.templates import Template
from nodesmith.model.labels import WELL_KNOWN
from nodesmith.model.shapes import Shape


def shared(
    demands: Sequence[Demand],
    neighbours: Neighbours,
    templates: Iterable[Template],
    daemonsets: Sequence[Shape],
) -> list[Demand]:
    """Give the demands with their rules; those that differ in nothing that matters for a node become one."""
    wishes = _wishes(demands, _open_keys(templates))
    found: dict[tuple[object, ...], Demand] = {}
    pods: dict[tuple[object, ...], list[Demand]] = {}
    for demand, groups in zip(demands, wishes, strict=True):
        rules = neighbours.rules(demand.shape)
        ruled = replace(
            demand,
            per_node=min(demand.per_node, rules.per_node),
            groups=(*rules.groups, *groups),
            caps=(*rules.caps, *((group ^ 1, 0) for group in groups)),
            apart=tuple(d for d in daemonsets if neighbours.conflict(demand.shape, d)),
        )
        alike = _alike(ruled)
        found.setdefault(alike, ruled)
        pods.setdefault(alike, []).append(ruled)
    merged = [
        replace(one, pods=tuple(p for d in pods[alike] for p in d.pods)) for alike, one in found.items()
    ]
    return _without_idle_rules(merged)


def _alike(demand: Demand) -> tuple[object, ...]:
    shape = demand.shape
    return (
        shape.requests, shape.terms, shape.own_terms, shape.tolerations, demand.pins,
        demand.per_node, demand.groups, demand.caps, demand.apart,
    )  # fmt: skip


def _without_idle_rules(demands: Sequence[Demand]) -> list[Demand]:
    """Leave out groups that nobody limits, and limits that nobody else can break: `per_node` says it."""
    members = Counter(group for demand in demands for group in demand.groups)
    kept = [tuple(cap for cap in d.caps if members[cap[0]] > (cap[0] in d.groups)) for d in demands]
    numbers: dict[int, int] = {}
    for caps in kept:
        for group, _ in caps:
            numbers.setdefault(group, len(numbers))
    return [
        replace(
            demand,
            caps=tuple((numbers[group], most) for group, most in caps),
            groups=tuple(numbers[group] for group in demand.groups if group in numbers),
        )
        for demand, caps in zip(demands, kept, strict=True)
    ]


def _open_keys(templates: Iterable[Template]) -> list[str]:
    return sorted(
        {
            key
            for template in templates
            for key, requirement in template.requirements.items()
            if key not in WELL_KNOWN and (requirement.complement or len(requirement.values) > 1)
        }
    )


def _wishes(demands: Sequence[Demand], keys: Sequence[str]) -> list[list[int]]:
    """Give each demand's groups of wishes: negative, for the others are not; group ^ 1 is the opposite."""
    found: list[list[int]] = [[] for _ in demands]
    first = -2
    for key in keys:
        numbers: dict[str, int] = {}
        wished = [_wish(demand, key) for demand in demands]
        for wish in filter(None, wished):
            numbers.setdefault(wish, len(numbers))
        bits = max(0, len(numbers) - 1).bit_length()
        for groups, wish in zip(found, wished, strict=True):
            if wish:
                groups += [first - 2 * bit + (numbers[wish] >> bit & 1) for bit in range(bits)]
        first -= 2 * bits
    return found


def _wish(demand: Demand, key: str) -> str:
    """Spell what a demand asks of a label that a NodePool leaves open, empty when nothing."""
    if key in demand.pins:
        return f"{key} In [{demand.pins[key]}]"
    return " or ".join(str(term[key]) for term in demand.shape.terms if key in term)
