"""Devices as resources: what a node has of them, and what the claims of a pod take, in amounts that add up.

A *unit* is one device that some selectors select; its alternatives count as one unit if each of them is one device.
For each set of units whose devices overlap there is a resource: a node has as much of it as it has devices that any
unit of the set selects, and a pod requests as much as it asks for units of the set. By Hall's theorem, pods whose
requests fit a node can get their devices at the same time, and others cannot. So nodes are chosen for devices with the
same exact arithmetic as for cpu and memory.

Claims that no number of units describes (constraints, all devices of a node, alternatives of different numbers, shares
and partitions of devices) have a resource of their own: a node has as much of it as the allocator finds places for such
pods.

Devices of nodes that are initialized come from their ResourceSlices. Those of nodes to come are the ones that
NodeOverlays declare for their type; for other drivers, those that the newest node of the same NodePool and type has.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations

from nodesmith.decisions.scheduling.compatibility import TypeSet
from nodesmith.decisions.scheduling.devices.allocation import Matcher, copies
from nodesmith.model.apimachinery.labels import INITIALIZED, INSTANCE_TYPE, NODEPOOL
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.devices import (
    ALL,
    DEVICES,
    DeviceKind,
    DevicePool,
    DeviceSelection,
    PodClaim,
    Stock,
)
from nodesmith.model.kubernetes.nodes import Node

_MOST_OVERLAPPING = 5
"""Units whose devices overlap make a resource for each of their sets: 31 at most."""
MOST_DEVICES_OF_POD = 128


@dataclass(frozen=True, slots=True)
class Unit:
    """One device for any of these alternatives: DeviceClass and selectors."""

    alternatives: tuple[tuple[str, tuple[str, ...]], ...]

    def is_met_by(self, matcher: Matcher, stock: Stock) -> frozenset[int]:
        """Return the numbers of the kinds of a stock that it selects."""
        wants = (DeviceSelection("", name, selectors) for name, selectors in self.alternatives)
        return frozenset(number for want in wants for number in matcher.selected(want, stock))

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(name for name, _ in self.alternatives))


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """What the claims of a pod ask for: numbers of `units`, and `whole` claims that these do not describe, if any."""

    units: Mapping[Unit, int]
    whole: tuple[PodClaim, ...] = ()

    @property
    def own_resource(self) -> str:
        """The resource that stands for places of such pods; empty if the units say all."""
        return DEVICES + _digest([str(claim.content) for claim in self.whole]) if self.whole else ""


def asked_by(claims: Sequence[PodClaim]) -> RequestedDevices:
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
    return RequestedDevices(units, tuple(claims) if whole else ())


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

    def __init__(
        self, requested: Iterable[RequestedDevices], kinds: Iterable[DeviceKind], matcher: Matcher
    ) -> None:
        self._matcher = matcher
        everything = list(requested)
        # Their order decides which selectors are evaluated while there are steps left.
        units = sorted({unit for devices in everything for unit in devices.units}, key=str_of)
        self._whole = {devices.own_resource: devices.whole for devices in everything if devices.whole}
        alone = [((kind, 1, 1),) for kind in dict.fromkeys(kinds)]
        selected = {
            unit: frozenset(n for n, one in enumerate(alone) if unit.is_met_by(matcher, one))
            for unit in units
        }
        self.unknown = frozenset(unit for unit, numbers in selected.items() if not numbers)
        """Units that no known device meets."""
        self.exclusive: frozenset[Unit] = frozenset()
        """Units that overlap with too many others: pods that ask for them share no node with other such pods."""
        self._sets = dict(self._overlapping(selected))
        self._amounts: dict[Stock, Resources] = {}

    def _overlapping(self, selected: Mapping[Unit, frozenset[int]]) -> Iterator[tuple[str, tuple[Unit, ...]]]:
        """Yield the sets of units with overlapping devices, by their resource."""
        ungrouped = sorted((unit for unit in selected if selected[unit]), key=str_of)
        exclusive: set[Unit] = set()
        while ungrouped:
            group = _connected(ungrouped[0], ungrouped, selected)
            ungrouped = [unit for unit in ungrouped if unit not in group]
            exclusive.update(group[_MOST_OVERLAPPING:])
            for unit in group[_MOST_OVERLAPPING:]:
                yield _name((unit,)), (unit,)
            limited = group[:_MOST_OVERLAPPING]
            for size in range(1, len(limited) + 1):
                for combination in combinations(limited, size):
                    if len(_connected(combination[0], combination, selected)) == size:
                        yield _name(combination), combination
        self.exclusive = frozenset(exclusive)

    def requests(self, requested: RequestedDevices) -> Resources:
        """Return what a pod with such claims requests."""
        amounts = {}
        for name, units in self._sets.items():
            amount = sum(requested.units.get(unit, 0) for unit in units)
            if amount:
                amounts[name] = amount
        return Resources({**amounts, **({requested.own_resource: 1} if requested.whole else {})})

    def amounts(self, stock: Stock) -> Resources:
        """Return what a node with these devices offers of each resource."""
        if stock not in self._amounts:
            self._amounts[stock] = Resources({**self._of_units(stock), **self._of_whole(stock)})
        return self._amounts[stock]

    def _of_units(self, stock: Stock) -> dict[str, int]:
        matching = {
            unit: unit.is_met_by(self._matcher, stock)
            for unit in {unit for units in self._sets.values() for unit in units}
        }
        return {
            name: sum(stock[number][2] for number in frozenset().union(*(matching[unit] for unit in units)))
            for name, units in self._sets.items()
        }

    def _of_whole(self, stock: Stock) -> dict[str, int]:
        return {name: copies(stock, claims, self._matcher) for name, claims in self._whole.items()}


def str_of(unit: Unit) -> str:
    """Return text by which units are sorted."""
    return str(unit.alternatives)


def _connected(first: Unit, units: Sequence[Unit], selected: Mapping[Unit, frozenset[int]]) -> list[Unit]:
    """Return the units that overlap with the first one, directly or through others, in their order."""
    connected, fresh = {first}, [first]
    while fresh:
        current = fresh.pop()
        near = [unit for unit in units if unit not in connected and selected[unit] & selected[current]]
        connected.update(near)
        fresh += near
    return [unit for unit in units if unit in connected]


def _name(units: Iterable[Unit]) -> str:
    return DEVICES + _digest(sorted(map(str_of, units)))


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


Declared = Mapping[tuple[str, str], tuple[tuple[DeviceKind, int], ...]]
"""NodePool and instance type → the devices that NodeOverlays declare for its nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedDevices:
    """Devices as resources, for one decision: what nodes of each NodePool and type will have of them."""

    resources: DeviceResources
    _expected: Mapping[tuple[str, str], tuple[tuple[DeviceKind, int], ...]] = field(default_factory=dict)

    def on(self, pool: str, types: TypeSet) -> TypeSet:
        """Return a NodePool's instance types with their devices as resources."""
        added = tuple(
            (instance_type.name, stock, self.resources.amounts(free_stock(stock)))
            for instance_type in types.types
            if (stock := self._expected.get((pool, instance_type.name), ()))
        )
        return _with_devices(types, added) if added else types

    def known(self, claims: Iterable[NodeClaim]) -> list[NodeClaim]:
        """Return NodeClaims with what their nodes will have, whichever of their types they become."""
        return [
            replace(claim, allocatable=claim.allocatable + amounts) if (amounts := self._of(claim)) else claim
            for claim in claims
        ]

    def _of(self, claim: NodeClaim) -> Resources:
        requirement = claim.requirements.get(INSTANCE_TYPE)
        names = (
            {claim.instance_type} if claim.instance_type else set(requirement.values if requirement else ())
        )
        stocks = [self._expected.get((claim.nodepool, name), ()) for name in sorted(names)]
        if not stocks or not all(stocks):
            return NOTHING
        amounts = [self.resources.amounts(free_stock(stock)) for stock in stocks]
        return Resources({name: min(resources.of(name) for resources in amounts) for name in amounts[0]})


@lru_cache(maxsize=32)
def _with_devices(
    types: TypeSet, added: tuple[tuple[str, tuple[tuple[DeviceKind, int], ...], Resources], ...]
) -> TypeSet:
    devices = {name: (stock, amounts) for name, stock, amounts in added}
    return TypeSet(
        tuple(
            _changed(instance_type, *devices[instance_type.name])
            if instance_type.name in devices
            else instance_type
            for instance_type in types.types
        )
    )


def _changed(
    kind: InstanceType, devices: tuple[tuple[DeviceKind, int], ...], amounts: Resources
) -> InstanceType:
    return replace(
        kind,
        devices=devices,
        capacity=kind.capacity + amounts,
        allocatable=kind.allocatable + amounts,
    )


def free_stock(devices: Iterable[tuple[DeviceKind, int]]) -> Stock:
    """Return devices of which all are free."""
    return tuple((kind, count, count) for kind, count in devices)


def devices_of_nodes(pools: Iterable[DevicePool]) -> dict[str, Stock]:
    """Return the devices of each node."""
    by_node: dict[str, list[tuple[DeviceKind, int, int]]] = {}
    for pool in pools:
        if pool.node:
            by_node.setdefault(pool.node, []).extend(pool.stock)
    return {node: tuple(stock) for node, stock in sorted(by_node.items())}


def expected(declared: Declared, known: Declared) -> Declared:
    """Return the devices of nodes to come: what is declared, and what is known about other drivers."""
    merged = {**known, **declared}
    for key in declared.keys() & known.keys():
        drivers = {kind.driver for kind, _ in declared[key]}
        merged[key] = (*declared[key], *(entry for entry in known[key] if entry[0].driver not in drivers))
    return merged


def learned(nodes: Iterable[Node], local: Mapping[str, Stock]) -> Declared:
    """Return the devices that the newest initialized node of each NodePool and type has."""
    by_type: dict[tuple[str, str], tuple[tuple[DeviceKind, int], ...]] = {}
    for node in sorted(nodes, key=lambda node: (node.created_at, node.name)):
        stock, labels = local.get(node.name), node.labels
        if stock and labels.get(INITIALIZED) == "true" and NODEPOOL in labels and INSTANCE_TYPE in labels:
            kinds = Counter[DeviceKind]()
            for kind, number, _ in stock:
                kinds[kind.unused()] += number
            by_type[labels[NODEPOOL], labels[INSTANCE_TYPE]] = tuple(kinds.items())
    return by_type
