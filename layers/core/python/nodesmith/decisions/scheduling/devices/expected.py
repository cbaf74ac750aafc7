"""What nodes have of devices: those that run, and those to come.

Devices of nodes that are initialized come from their ResourceSlices. Those of nodes to come are the ones that
NodeOverlays declare for their type; for other drivers, those that the newest node of the same NodePool and type has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from nodesmith.decisions.scheduling.compatibility import TypeSet
from nodesmith.decisions.scheduling.devices.resources import DeviceResources
from nodesmith.model.apimachinery.labels import INITIALIZED, INSTANCE_TYPE, NODEPOOL
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.devices import DeviceKind, DevicePool, Stock
from nodesmith.model.kubernetes.nodes import Node

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
            (one.name, found, self.resources.amounts(free_stock(found)))
            for one in types.types
            if (found := self._expected.get((pool, one.name), ()))
        )
        return _with_devices(types, added) if added else types

    def known(self, claims: Iterable[NodeClaim]) -> list[NodeClaim]:
        """Return NodeClaims with what their nodes will have, whichever of their types they become."""
        return [
            replace(claim, allocatable=claim.allocatable + amounts) if (amounts := self._of(claim)) else claim
            for claim in claims
        ]

    def _of(self, claim: NodeClaim) -> Resources:
        wanted = claim.requirements.get(INSTANCE_TYPE)
        names = {claim.instance_type} if claim.instance_type else set(wanted.values if wanted else ())
        found = [self._expected.get((claim.nodepool, name), ()) for name in sorted(names)]
        if not found or not all(found):
            return NOTHING
        amounts = [self.resources.amounts(free_stock(each)) for each in found]
        return Resources({name: min(each.of(name) for each in amounts) for name in amounts[0]})


@lru_cache(maxsize=32)
def _with_devices(
    types: TypeSet, added: tuple[tuple[str, tuple[tuple[DeviceKind, int], ...], Resources], ...]
) -> TypeSet:
    devices = {name: (found, amounts) for name, found, amounts in added}
    return TypeSet(
        tuple(_changed(one, *devices[one.name]) if one.name in devices else one for one in types.types)
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
    found: dict[str, list[tuple[DeviceKind, int, int]]] = {}
    for pool in pools:
        if pool.node:
            found.setdefault(pool.node, []).extend(pool.stock)
    return {node: tuple(stock) for node, stock in sorted(found.items())}


def expected(declared: Declared, known: Declared) -> Declared:
    """Return the devices of nodes to come: what is declared, and what is known about other drivers."""
    found = {**known, **declared}
    for key in declared.keys() & known.keys():
        drivers = {kind.driver for kind, _ in declared[key]}
        found[key] = (*declared[key], *(each for each in known[key] if each[0].driver not in drivers))
    return found


def learned(nodes: Iterable[Node], local: Mapping[str, Stock]) -> Declared:
    """Return the devices that the newest initialized node of each NodePool and type has."""
    found: dict[tuple[str, str], tuple[tuple[DeviceKind, int], ...]] = {}
    for node in sorted(nodes, key=lambda node: (node.created_at, node.name)):
        stock, labels = local.get(node.name), node.labels
        if stock and labels.get(INITIALIZED) == "true" and NODEPOOL in labels and INSTANCE_TYPE in labels:
            kinds = Counter[DeviceKind]()
            for kind, number, _ in stock:
                kinds[kind.unused()] += number
            found[labels[NODEPOOL], labels[INSTANCE_TYPE]] = tuple(kinds.items())
    return found
