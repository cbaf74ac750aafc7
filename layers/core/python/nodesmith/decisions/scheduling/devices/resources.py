"""Devices as resources: what a node has of them, and what the claims of a pod take, in amounts that add up.

A *unit* is one device that some selectors select; its alternatives count as one unit if each of them is one device.
For each set of units whose devices overlap there is a resource: a node has as much of it as it has devices that any
unit of the set selects, and a pod requests as much as it asks for units of the set. By Hall's theorem, pods whose
requests fit a node can get their devices at the same time, and others cannot. So nodes are chosen for devices with the
same exact arithmetic as for cpu and memory.

Claims that no number of units describes (constraints, all devices of a node, alternatives of different numbers, shares
and partitions of devices) have a resource of their own: a node has as much of it as the allocator finds places for such
pods.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from nodesmith.decisions.scheduling.devices.allocation import Matcher, copies
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.kubernetes.devices import ALL, DEVICES, DeviceKind, PodClaim, Stock, Want

_MOST_OVERLAPPING = 5
"""Units whose devices overlap make a resource for each of their sets: 31 at most."""
MOST_DEVICES_OF_POD = 128


@dataclass(frozen=True, slots=True)
class Unit:
    """One device for any of these alternatives: DeviceClass and selectors."""

    alternatives: tuple[tuple[str, tuple[str, ...]], ...]

    def is_met_by(self, matcher: Matcher, stock: Stock) -> frozenset[int]:
        """Return the numbers of the kinds of a stock that it selects."""
        wants = (Want("", name, selectors) for name, selectors in self.alternatives)
        return frozenset(number for want in wants for number in matcher.selected(want, stock))

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(name for name, _ in self.alternatives))


@dataclass(frozen=True, slots=True)
class Asked:
    """What the claims of a pod ask for: numbers of `units`, and `whole` claims that these do not describe, if any."""

    units: Mapping[Unit, int]
    whole: tuple[PodClaim, ...] = ()

    @property
    def own_resource(self) -> str:
        """The resource that stands for places of such pods; empty if the units say all."""
        return DEVICES + _digest([str(claim.content) for claim in self.whole]) if self.whole else ""


def asked_by(claims: Sequence[PodClaim]) -> Asked:
    """Return what claims ask for."""
    units: Counter[Unit] = Counter()
    whole = False
    for claim in claims:
        whole = whole or bool(claim.constraints)
        for request in claim.requests:
            counts = {want.count for want in request.wants}
            if ALL in counts or (len(request.wants) > 1 and counts != {1}):
                whole = True
                continue
            alternatives = {(want.device_class, want.selectors) for want in request.wants}
            units[Unit(tuple(sorted(alternatives)))] += counts.pop()
    return Asked(units, tuple(claims) if whole else ())


def is_many(claims: Iterable[PodClaim]) -> bool:
    """Return whether claims may take more devices than are simulated for one pod."""
    return sum(max((w.count or 1) for w in r.wants) for c in claims for r in c.requests) > MOST_DEVICES_OF_POD


def is_trivial(claims: Iterable[PodClaim], stocks: Iterable[Stock], matcher: Matcher) -> bool:
    """Return whether constraints hold anyway: on each node, all devices that they are about have the same value.

    Only then do units describe such claims. They have no alternatives and take no whole nodes.
    """
    stocks = list(stocks)
    for claim in claims:
        if any(len(request.wants) > 1 or request.wants[0].count == ALL for request in claim.requests):
            return False
        for constraint in claim.constraints:
            wants = [r.wants[0] for r in claim.requests if constraint.covers(r.name, r.wants[0].name)]
            for stock in stocks:
                about = {number for want in wants for number in matcher.selected(want, stock)}
                values = {stock[number][0].value(constraint.attribute) for number in about}
                if len(values) > 1 or None in values:
                    return False
    return True


class DeviceResources:
    """The resources for what some pods ask for, in a cluster with devices of these kinds."""

    def __init__(self, asked: Iterable[Asked], kinds: Iterable[DeviceKind], matcher: Matcher) -> None:
        self._matcher = matcher
        everything = list(asked)
        units = {unit for each in everything for unit in each.units}
        self._whole = {each.own_resource: each.whole for each in everything if each.whole}
        alone = [((kind, 1, 1),) for kind in dict.fromkeys(kinds)]
        selected = {
            unit: frozenset(n for n, one in enumerate(alone) if unit.is_met_by(matcher, one))
            for unit in units
        }
        self.unknown = frozenset(unit for unit, found in selected.items() if not found)
        """Units that no known device meets."""
        self.crowded: frozenset[Unit] = frozenset()
        """Units that overlap with too many others: pods that ask for them share no node with other such pods."""
        self._sets = dict(self._overlapping(selected))
        self._amounts: dict[Stock, Resources] = {}

    def _overlapping(self, selected: Mapping[Unit, frozenset[int]]) -> Iterator[tuple[str, tuple[Unit, ...]]]:
        """Yield the sets of units with overlapping devices, by their resource."""
        left = sorted((unit for unit in selected if selected[unit]), key=str_of)
        crowded: set[Unit] = set()
        while left:
            group = _connected(left[0], left, selected)
            left = [unit for unit in left if unit not in group]
            crowded.update(group[_MOST_OVERLAPPING:])
            for unit in group[_MOST_OVERLAPPING:]:
                yield _name((unit,)), (unit,)
            kept = group[:_MOST_OVERLAPPING]
            for size in range(1, len(kept) + 1):
                for chosen in combinations(kept, size):
                    if len(_connected(chosen[0], chosen, selected)) == size:
                        yield _name(chosen), chosen
        self.crowded = frozenset(crowded)

    def requests(self, asked: Asked) -> Resources:
        """Return what a pod with such claims requests."""
        found = {}
        for name, units in self._sets.items():
            amount = sum(asked.units.get(unit, 0) for unit in units)
            if amount:
                found[name] = amount
        return Resources({**found, **({asked.own_resource: 1} if asked.whole else {})})

    def amounts(self, stock: Stock) -> Resources:
        """Return what a node with these devices offers of each resource."""
        if stock not in self._amounts:
            self._amounts[stock] = Resources({**self._of_units(stock), **self._of_whole(stock)})
        return self._amounts[stock]

    def _of_units(self, stock: Stock) -> dict[str, int]:
        met = {
            unit: unit.is_met_by(self._matcher, stock)
            for unit in {unit for units in self._sets.values() for unit in units}
        }
        return {
            name: sum(stock[number][2] for number in frozenset().union(*(met[unit] for unit in units)))
            for name, units in self._sets.items()
        }

    def _of_whole(self, stock: Stock) -> dict[str, int]:
        return {name: copies(stock, claims, self._matcher) for name, claims in self._whole.items()}


def str_of(unit: Unit) -> str:
    """Return text by which units are sorted."""
    return str(unit.alternatives)


def _connected(first: Unit, units: Sequence[Unit], selected: Mapping[Unit, frozenset[int]]) -> list[Unit]:
    """Return the units that overlap with the first one, directly or through others, in their order."""
    found, fresh = {first}, [first]
    while fresh:
        one = fresh.pop()
        near = [unit for unit in units if unit not in found and selected[unit] & selected[one]]
        found.update(near)
        fresh += near
    return [unit for unit in units if unit in found]


def _name(units: Iterable[Unit]) -> str:
    return DEVICES + _digest(sorted(map(str_of, units)))


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
