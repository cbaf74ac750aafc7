"""What the price of nodes pays for: requests of pods, DaemonSets, capacity that nothing requests, expensive families.

A node's price is divided between its cpu and memory as EC2's prices are: a vCPU costs about as much as ten GiB (a least
squares fit to the on-demand prices of the c, m and r families in the embedded catalogue). On a node with GPUs, the
price is that of the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from nodesmith.decisions.disruption.proposals import Blocker
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, NOTHING, Resources, total
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.costs.savings.nodeprices import PricedNode
from nodesmith_cli.costs.savings.reading import Usage

_GIB = 2**30
_GIB_PER_CPU = 10.0
ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron")
_BURSTABLE = "t"
_HASH = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of nodes' prices, USD an hour: what pods request, what DaemonSets request, and what nothing requests."""

    pods: float = 0.0
    daemons: float = 0.0
    free_cpu: float = 0.0
    free_memory: float = 0.0
    free_accelerators: float = 0.0

    @property
    def free(self) -> float:
        """The price of the capacity that nothing requests."""
        return self.free_cpu + self.free_memory + self.free_accelerators

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            self.pods + other.pods,
            self.daemons + other.daemons,
            self.free_cpu + other.free_cpu,
            self.free_memory + other.free_memory,
            self.free_accelerators + other.free_accelerators,
        )


@dataclass(frozen=True, slots=True)
class Shares:
    """What one unit of each resource of a node costs, USD an hour."""

    by_resource: Mapping[str, float]

    def of(self, requests: Resources) -> float:
        """Return the price of these requests."""
        return fsum(price * requests.of(name) for name, price in self.by_resource.items())


def shares_of(node: PricedNode) -> Shares:
    """Return what a unit of each resource of a node costs: of its accelerators if it has any, or of cpu and memory."""
    offered = node.node.allocatable
    accelerators = [name for name in ACCELERATORS if offered.of(name)]
    if accelerators:
        part = node.hourly_usd / len(accelerators)
        return Shares({name: part / offered.of(name) for name in accelerators})
    cpu, memory = offered.cpu_milli / 1000 * _GIB_PER_CPU, offered.memory_bytes / _GIB
    unit = node.hourly_usd / max(cpu + memory, 1e-9)
    return Shares({CPU: unit * _GIB_PER_CPU / 1000, MEMORY: unit / _GIB})


def parts_of(node: PricedNode, pods: Iterable[Pod]) -> Parts:
    """Return what a node's price pays for. What pods request beyond its capacity does not count."""
    offered, shares = node.node.allocatable, shares_of(node)
    shapes = [pod.shape for pod in pods]
    daemons = _capped(total([s.requests for s in shapes if not s.moves]), offered)
    used = _capped(total([s.requests for s in shapes]), offered)
    free = {name: price * (offered.of(name) - used.of(name)) for name, price in shares.by_resource.items()}
    return Parts(
        pods=max(0.0, shares.of(used) - shares.of(daemons)),
        daemons=shares.of(daemons),
        free_cpu=free.get(CPU, 0.0),
        free_memory=free.get(MEMORY, 0.0),
        free_accelerators=fsum(free[name] for name in sorted(free.keys() - {CPU, MEMORY})),
    )


def _capped(requests: Resources, offered: Resources) -> Resources:
    return Resources({name: max(0, min(amount, offered.of(name))) for name, amount in requests.items()})


def parts_by_node(nodes: Iterable[PricedNode], snapshot: Snapshot) -> dict[str, Parts]:
    """Return what the price of every priced node pays for, by the node's name."""
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        pods.setdefault(pod.node, []).append(pod)
    return {node.name: parts_of(node, pods.get(node.name, ())) for node in nodes if node.price is not None}


@dataclass(frozen=True, slots=True)
class KeptNodes:
    """Nodes that one rule keeps. Prices are USD an hour; `free` is what nothing requests on them."""

    rule: str
    object: str
    message: str
    nodes: tuple[str, ...]
    hourly_usd: float
    free_hourly_usd: float


def held_by_rule(
    blocked: Mapping[str, Blocker],
    nodes: Iterable[PricedNode],
    parts: Mapping[str, Parts],
    pods: Iterable[Pod] = (),
) -> list[KeptNodes]:
    """Return the rules that keep nodes, the one with the most unrequested capacity first.

    A pod's rule is counted for its workload.
    """
    price = {node.name: node.hourly_usd for node in nodes}
    workloads = {f"Pod/{pod.key}": f"pods of {workload_of(pod.shape)}" for pod in pods}
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(blocked.keys() & parts.keys()):
        on = blocked[name].object
        groups.setdefault((blocked[name].rule, workloads.get(on, on)), []).append(name)
    held_nodes = [
        KeptNodes(
            rule,
            on,
            blocked[names[0]].message,
            tuple(names),
            fsum(price[name] for name in names),
            fsum(parts[name].free for name in names),
        )
        for (rule, on), names in groups.items()
    ]
    return sorted(held_nodes, key=lambda held: (-held.free_hourly_usd, held.rule, held.object))


@dataclass(frozen=True, slots=True)
class Workload:
    """What the pods of one workload request and use, and what the difference costs, USD an hour.

    `used` is None if usage is unknown. `hourly_usd` is the price of the requests, `unused_hourly_usd` that of the
    requests beyond the use.
    """

    name: str
    pods: int
    requests: Resources
    hourly_usd: float
    used: Resources | None = None
    unused_hourly_usd: float = 0.0


def workload_of(shape: Shape) -> str:
    """Return a workload's name, `namespace/kind/name`: that of the Deployment for a pod of its ReplicaSet.

    Jobs have no name of their own here: the pods of all alike Jobs share one shape.
    """
    owner = shape.owner or "Pod"
    suffix = f"-{shape.labels.get(_HASH, '')}"
    if owner.startswith("ReplicaSet/") and len(suffix) > 1 and owner.endswith(suffix):
        owner = f"Deployment/{owner.removeprefix('ReplicaSet/').removesuffix(suffix)}"
    return f"{shape.namespace}/{owner.rstrip('/')}"


def daemonsets(nodes: Iterable[PricedNode], snapshot: Snapshot) -> list[Workload]:
    """Return what each DaemonSet's pods cost, the most expensive first."""
    return _workloads(nodes, [pod for pod in snapshot.pods if pod.shape.is_daemon], Usage({}))


def oversized(nodes: Iterable[PricedNode], snapshot: Snapshot, usage: Usage) -> list[Workload]:
    """Return the workloads with pods that request more than they use in this sample, the largest cost first."""
    pods = [pod for pod in snapshot.pods if pod.key in usage.by_pod]
    candidates = [workload for workload in _workloads(nodes, pods, usage) if workload.unused_hourly_usd > 0]
    return sorted(candidates, key=lambda daemonset: (-daemonset.unused_hourly_usd, daemonset.name))


def _workloads(nodes: Iterable[PricedNode], pods: Sequence[Pod], usage: Usage) -> list[Workload]:
    shares = {node.name: shares_of(node) for node in nodes if node.price is not None}
    groups: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node in shares:
            groups.setdefault(workload_of(pod.shape), []).append(pod)
    workloads = []
    for name, members in groups.items():
        used = [usage.by_pod[pod.key] for pod in members if pod.key in usage.by_pod]
        surplus = fsum(
            shares[pod.node].of(_beyond(pod.shape.requests, usage.by_pod[pod.key]))
            for pod in members
            if pod.key in usage.by_pod
        )
        price = fsum(shares[pod.node].of(pod.shape.requests) for pod in members)
        requests = total([pod.shape.requests for pod in members])
        workloads.append(
            Workload(name, len(members), requests, price, total(used) if used else None, surplus)
        )
    return sorted(workloads, key=lambda workload: (-workload.hourly_usd, workload.name))


def _beyond(requests: Resources, used: Resources) -> Resources:
    excess = {name: max(0, requests.of(name) - used.of(name)) for name in (CPU, MEMORY)}
    return Resources(excess) if any(excess.values()) else NOTHING


@dataclass(frozen=True, slots=True)
class Family:
    """The nodes of one instance family, sold in one way, next to the cheapest types of at least their size."""

    name: str
    capacity_type: str
    nodes: int
    hourly_usd: float
    cheapest: str
    cheapest_hourly_usd: float


def families(nodes: Iterable[PricedNode], catalog: Catalog, allowed: Iterable[str]) -> list[Family]:
    """Return the families of nodes that cheaper, allowed types of at least the same size could replace.

    The types are of the same architecture, zone and capacity type. `cheapest` is the type that replaces most nodes.
    """
    types = [
        fact for name in sorted(set(allowed)) if isinstance(fact := catalog.facts.get(name), InstanceFacts)
    ]
    groups: dict[tuple[str, str], list[tuple[PricedNode, str, float]]] = {}
    cheapest: dict[tuple[str, str, str], tuple[str, float]] = {}
    for node in nodes:
        fact = catalog.facts.get(node.instance_type)
        if node.price is None or not isinstance(fact, InstanceFacts):
            continue
        key = node.instance_type, node.zone, node.capacity_type
        if key not in cheapest:
            cheapest[key] = _cheapest(fact, node, types, catalog)
        family = node.instance_type.partition(".")[0]
        groups.setdefault((family, node.capacity_type), []).append((node, *cheapest[key]))
    all_families = [_family(family, sold, rows) for (family, sold), rows in groups.items()]
    cheaper = [move for move in all_families if move.cheapest_hourly_usd < move.hourly_usd * 0.999]
    return sorted(cheaper, key=lambda f: (f.cheapest_hourly_usd - f.hourly_usd, f.name, f.capacity_type))


def _family(name: str, sold: str, rows: Sequence[tuple[PricedNode, str, float]]) -> Family:
    types = [kind for _, kind, _ in rows]
    most = min(set(types), key=lambda kind: (-types.count(kind), kind))
    return Family(
        name, sold, len(rows), fsum(e.hourly_usd for e, _, _ in rows), most, fsum(p for _, _, p in rows)
    )


def _cheapest(
    fact: InstanceFacts, node: PricedNode, types: Iterable[InstanceFacts], catalog: Catalog
) -> tuple[str, float]:
    """Return the cheapest type that is at least as large, and its price; the node's own if none is cheaper."""
    best = node.hourly_usd, node.instance_type
    for other in types:
        if not _replaces(other, fact):
            continue
        for offering in catalog.offerings.get(other.name, ()):
            if (offering.zone, offering.capacity_type) == (
                node.zone,
                node.capacity_type,
            ) and offering.available:
                best = min(best, (offering.price_hourly_usd, other.name))
    return best[1], best[0]


def _replaces(other: InstanceFacts, fact: InstanceFacts) -> bool:
    """Return whether a type has at least another one's resources, and is not burstable in place of a steady one."""
    is_weaker = other.name.startswith(_BURSTABLE) and not fact.name.startswith(_BURSTABLE)
    is_alike = (other.arch, bool(other.gpus), bool(other.local_storage_gb) or not fact.local_storage_gb) == (
        fact.arch,
        bool(fact.gpus),
        True,
    )
    return (
        is_alike
        and not is_weaker
        and other.vcpus >= fact.vcpus
        and other.memory_mib >= fact.memory_mib
        and sum(g.units for g in other.gpus) >= sum(g.units for g in fact.gpus)
    )
