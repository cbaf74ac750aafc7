"""The cluster after the plan, with every pod on its planned node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.audit.machines import Machine, Refusal, machine
from nodesmith_cli.audit.purchases import Mismatch, Purchase, purchase
from nodesmith_cli.audit.reading.cluster import Cluster
from nodesmith_cli.audit.reading.fields import HOSTNAME, UNREADABLE
from nodesmith_cli.audit.reading.overlays import with_overlays
from nodesmith_cli.audit.reading.places import Place
from nodesmith_cli.audit.reading.plans import Plan, PlannedNode
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.reading.pools import FIXED, RESERVATION_ID, Pool, read_pool
from nodesmith_cli.audit.violations import Kind, Violation


@dataclass(slots=True)
class Outcome:
    """Places by name, including new nodes, whose `purchases` have the same names.

    `violations` are added as they are found.
    """

    cluster: Cluster
    plan: Plan
    pools: dict[str, Pool] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    purchases: dict[str, Purchase] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def report(self, kind: Kind, subject: str, message: str) -> None:
        """Add a violation."""
        self.violations.append(Violation(kind, subject, message))

    def placed(self) -> Iterator[tuple[Pod, Place]]:
        """Yield every pod that the plan places, with its place."""
        for place in self.places.values():
            yield from ((pod, place) for pod in place.pods)


def outcome(cluster: Cluster, catalog: Catalog, plan: Plan, settings: NodeSettings) -> Outcome:
    """Return the cluster after the plan. Pods that it moves off a closing node are no longer on it."""
    result = Outcome(cluster, plan, places=dict(cluster.places), violations=list(plan.violations))
    for name, manifest in sorted(cluster.pools.items()):
        try:
            result.pools[name] = read_pool(manifest, cluster, catalog, settings)
        except UNREADABLE as error:
            if any(node.pool == name for node in plan.nodes):
                result.report(Kind.UNREADABLE, name, f"the NodePool is unreadable: {error!r}")
    result.pools = with_overlays(result.pools, cluster.overlays)
    mentioned = {key for _, pods in plan.existing for key in pods} | {
        k for node in plan.nodes for k in node.pods
    }
    for place in result.places.values():
        place.bound = [pod for pod in place.bound if pod.key not in mentioned]
    for name, keys in plan.existing:
        _keep(result, name, _pods(cluster, keys))
    shop = _PurchaseCache(result)
    for node in plan.nodes:
        shop.buy(node, _pods(cluster, node.pods))
    return result


def _pods(cluster: Cluster, keys: Iterable[str]) -> list[Pod]:
    """Return the pods that exist and are readable, each once."""
    existing_pods = (cluster.pods.get(key) for key in dict.fromkeys(keys))
    return [pod for pod in existing_pods if pod is not None and not pod.fault]


def _keep(result: Outcome, name: str, pods: list[Pod]) -> None:
    place = result.cluster.place(name)
    if place is None:
        result.report(Kind.NODE_UNKNOWN, name, "neither a Node nor a NodeClaim has this name")
        return
    if place.closed:
        result.report(Kind.NODE_CLOSED, name, f"accepts no pods: {place.closed}")
    place.pods += pods


class _PurchaseCache:
    """Computes purchases, once for each group of equal nodes, and caches machines."""

    def __init__(self, result: Outcome) -> None:
        self._result = result
        self._bought: Counter[str] = Counter()
        self._machines: dict[tuple[str, ...], Machine | Refusal] = {}
        self._purchases: dict[tuple[object, ...], Purchase] = {}

    def buy(self, node: PlannedNode, pods: list[Pod]) -> None:
        """Add a node with its pods to the places."""
        result = self._result
        if node.name in result.places or node.name in result.cluster.place_of:
            result.report(Kind.NODE_TWICE, node.name, "another node or NodeClaim has this name")
            return
        place = Place(node.name, {HOSTNAME: node.name}, (), None, is_new=True, pods=pods)
        result.places[node.name] = place
        pool = result.pools.get(node.pool)
        self._bought[node.pool] += 1
        is_static = pool is not None and pool.closed == FIXED
        is_owed = pool is not None and is_static and self._bought[node.pool] <= (pool.replicas or 0)
        if pool is None or (pool.closed and not is_owed):
            reason = f"launches nothing: {pool.closed}" if pool else "does not exist, or is unreadable"
            result.report(Kind.NODEPOOL, node.name, f"NodePool {node.pool} {reason}")
        if node.instance_type not in node.instance_types:
            result.report(
                Kind.INSTANCE_TYPE, node.name, f"{node.instance_type} is not among its instanceTypes"
            )
        if not node.pods and not is_static:
            result.report(Kind.NODE_EMPTY, node.name, "has no pods")
        if pool is not None:
            bought = result.purchases[node.name] = self._purchase(pool, node, pods)
            place.labels, place.taints = {**bought.labels, HOSTNAME: node.name}, pool.taints
            place.unsettled = bought.unsettled
            place.presumed = {**(bought.machines[0].labels if bought.machines else {}), **place.labels}

    def _purchase(self, pool: Pool, node: PlannedNode, pods: list[Pod]) -> Purchase:
        names = tuple(dict.fromkeys((node.instance_type, *node.instance_types)))
        placings = {pod.placing: pod for pod in pods}
        stated = tuple(sorted(node.labels.items()))
        key = (pool.name, names, node.zone, node.capacity_type, frozenset(placings), stated)
        if key not in self._purchases:
            made = {name: self._machine(pool, name, node) for name in names}
            machines = [result for result in made.values() if isinstance(result, Machine)]
            bought = purchase(pool, machines, placings.values(), node.labels, self._result.cluster.daemons)
            refused = ((name, result) for name, result in made.items() if isinstance(result, Refusal))
            bought.misfits = [
                *(Mismatch("", name, kind, reason) for name, (kind, reason) in refused),
                *bought.misfits,
            ]
            self._purchases[key] = bought
        return self._purchases[key]

    def _machine(self, pool: Pool, name: str, node: PlannedNode) -> Machine | Refusal:
        sold = (name, node.zone, node.capacity_type, node.labels.get(RESERVATION_ID, ""))
        key = (pool.name, *sold)
        if key not in self._machines:
            self._machines[key] = machine(pool, *sold)
        return self._machines[key]
