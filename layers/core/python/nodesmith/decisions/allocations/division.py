"""The division of each node's cost in an hour among the owners of its pods, as OpenCost does it.

The price is divided among CPU, memory and GPUs in the ratio of OpenCost's default prices, and each part among pods by
their requests. What no pod requests is idle.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.decisions.allocations.nodes import BookedNode, Period, View, truncated
from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import RESERVED
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.costs.allocations import HOUR, Allocation, Kind, Owner, microseconds
from nodesmith.model.kubernetes.pods import Pod, is_planned

CPU_CORE_NANO_USD, MEMORY_GIB_NANO_USD, GPU_NANO_USD = 31_611_000, 4_237_000, 950_000_000
"""OpenCost's default prices an hour (configs/default.json). Only their ratios matter: they divide a node's price."""
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi")
_MIB = 2**20
_OF_DEPLOYMENT = re.compile(r"ReplicaSet/(.+)-[bcdf-hj-np-tv-xz2456789]{5,10}")
"""A Deployment's ReplicaSet, whose name ends with a hash in Kubernetes' own alphabet"""
_SECOND = 1_000_000
"""in microseconds"""
_Use = tuple[int, int, int]
"""CPU in thousandths of a core, memory in MiB, and GPUs"""


@dataclass(slots=True)
class _Bill:
    """An owner's share of a node's cost, while it is added up. `uses` are amounts times microseconds."""

    uses: list[int] = field(default_factory=lambda: [0, 0, 0])
    costs: list[int] = field(default_factory=lambda: [0, 0, 0])
    whole: int = 0
    """the cost that is not divided among resources"""
    lasted: int = 0
    pods: set[str] = field(default_factory=set)
    estimated: bool = False


class Hour:
    """The pods of an hour by node and owner, and the division of each node's cost among them."""

    def __init__(
        self,
        views: Sequence[View],
        start: datetime,
        labels: Sequence[str],
        share: Callable[[str, str], float] = lambda *_: 0.0,
    ) -> None:
        """`share` returns which part of the on-demand instances of a type in a zone commitments pay for."""
        self._views, self._start, self._share = views, start, share
        self._pods = [_by_node(view.snapshot.pods, labels) for view in views]

    def allocations(self, node: BookedNode) -> list[Allocation]:
        """Return what each owner bears of a node's cost in the hour, in order. Their sum is the cost of the periods."""
        bills: dict[Owner, _Bill] = {}
        for period in node.periods:
            if period.is_stopped:
                stopped = bills.setdefault(_STOPPED, _Bill())
                stopped.whole += period.cost
                stopped.lasted += microseconds(period.end - period.start)
                stopped.estimated = stopped.estimated or period.price.estimated
            else:
                self._divide(node, period, bills)
        hourly = node.periods[-1].price.hourly if node.periods else 0
        share = self._committed(node)
        allocations = [self._allocation(node, owner, bills[owner], hourly, share) for owner in bills]
        return sorted(allocations, key=lambda one: one.key)

    def _divide(self, node: BookedNode, period: Period, bills: dict[Owner, _Bill]) -> None:
        lasted = microseconds(period.end - period.start)
        uses_by_owner = self._requested_use(node, period, bills)
        has = _amounts(node.capacity)
        parts = _parts(period.cost, has)
        idle = bills.setdefault(_IDLE, _Bill())
        idle.lasted += lasted
        for at, part in enumerate(parts):
            all_used = sum(uses[at] for uses in uses_by_owner.values())
            total, unassigned = max(has[at] * lasted, all_used), part
            for owner, uses in uses_by_owner.items():
                bills[owner].uses[at] += uses[at]
                borne = part * uses[at] // total if total else 0
                bills[owner].costs[at] += borne
                unassigned -= borne
            idle.costs[at] += unassigned
            idle.uses[at] += total - all_used
        for owner in (*uses_by_owner, _IDLE):
            bills[owner].estimated = bills[owner].estimated or period.price.estimated

    def _requested_use(
        self, node: BookedNode, period: Period, bills: dict[Owner, _Bill]
    ) -> dict[Owner, list[int]]:
        """Return what owners request on a node in a period, as amounts times microseconds."""
        uses_by_owner: dict[Owner, list[int]] = {}
        first = max(0, bisect_right([view.start for view in self._views], period.start) - 1)
        for view, pods in zip(self._views[first:], self._pods[first:], strict=True):
            lasted = microseconds(min(view.end, period.end) - max(view.start, period.start))
            if view.start >= period.end:
                break
            for owner, (use, names) in pods.get(node.name, {}).items() if lasted > 0 else ():
                bill, sums = bills.setdefault(owner, _Bill()), uses_by_owner.setdefault(owner, [0, 0, 0])
                bill.lasted += lasted
                bill.pods |= names
                for at, amount in enumerate(use):
                    sums[at] += amount * lasted
        return uses_by_owner

    def _committed(self, node: BookedNode) -> float:
        if node.capacity_type == RESERVED:
            return 1.0
        return self._share(node.instance_type, node.zone) if node.is_committable else 0.0

    def _allocation(
        self, node: BookedNode, owner: Owner, bill: _Bill, hourly: int, share: float
    ) -> Allocation:
        cost = sum(bill.costs) + bill.whole
        cpu, memory, gpus = ((use + _SECOND // 2) // _SECOND for use in bill.uses)
        return Allocation(
            window_start=self._start,
            window_end=self._start + HOUR,
            node=node.name,
            instance_id=node.instance_id,
            nodepool=node.nodepool,
            instance_type=node.instance_type,
            zone=node.zone,
            capacity_type=node.capacity_type,
            manager=node.manager,
            owner=owner,
            pods=len(bill.pods),
            seconds=(bill.lasted + _SECOND // 2) // _SECOND,
            cpu_milli_seconds=cpu,
            memory_mib_seconds=memory,
            gpu_seconds=gpus,
            hourly_nano_usd=hourly,
            cpu_nano_usd=bill.costs[0],
            memory_nano_usd=bill.costs[1],
            gpu_nano_usd=bill.costs[2],
            committed_nano_usd=int(cost * share),
            nano_usd=cost,
            estimated=bill.estimated,
        )


_IDLE, _STOPPED = Owner(Kind.IDLE, Kind.IDLE.value), Owner(Kind.STOPPED, Kind.STOPPED.value)


def _amounts(resources: Resources) -> _Use:
    gpus = sum(resources.of(name) for name in GPUS)
    return resources.cpu_milli, resources.memory_bytes // _MIB, gpus


def _parts(cost: int, has: _Use) -> tuple[int, int, int]:
    """Divide a node's cost among its CPU, memory and GPUs. What is not known of is CPU."""
    cpu = has[0] * CPU_CORE_NANO_USD // 1000
    memory, gpus = has[1] * MEMORY_GIB_NANO_USD // 1024, has[2] * GPU_NANO_USD
    total = cpu + memory + gpus
    if not total:
        return cost, 0, 0
    of_memory, of_gpus = cost * memory // total, cost * gpus // total
    return cost - of_memory - of_gpus, of_memory, of_gpus


def _by_node(pods: Iterable[Pod], labels: Sequence[str]) -> dict[str, dict[Owner, tuple[_Use, set[str]]]]:
    """Return what the pods of each owner request on each node, and their names."""
    owners_by_node: dict[str, dict[Owner, tuple[_Use, set[str]]]] = {}
    owners: dict[int, tuple[Owner, _Use]] = {}
    for pod in pods:
        if not pod.node or is_planned(pod.key):
            continue
        shape = pod.shape
        if id(shape) not in owners:
            owners[id(shape)] = _owner(pod, labels), _amounts(shape.requests)
        owner, use = owners[id(shape)]
        on_node = owners_by_node.setdefault(pod.node, {})
        sums, names = on_node.get(owner, ((0, 0, 0), set()))
        names.add(pod.key)
        on_node[owner] = (sums[0] + use[0], sums[1] + use[1], sums[2] + use[2]), names
    return owners_by_node


def _owner(pod: Pod, labels: Sequence[str]) -> Owner:
    shape = pod.shape
    workload = shape.owner
    if (match := _OF_DEPLOYMENT.fullmatch(workload)) is not None:
        workload = f"Deployment/{match[1]}"
    chosen_labels = {key: truncated(shape.labels[key]) for key in labels if key in shape.labels}
    kind = Kind.WORKLOAD if shape.moves else Kind.DAEMONSET
    workload = "" if shape.is_static else workload  # its owner is the node
    return Owner(
        kind,
        truncated(shape.namespace),
        truncated(workload),
        FrozenMap(chosen_labels) if chosen_labels else NO_ITEMS,
    )
