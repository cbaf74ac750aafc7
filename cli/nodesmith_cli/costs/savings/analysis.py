"""The analysis of a cluster: a pure function of its objects, the catalogue and the time.

Only the optional parts (what constraints cost, further passes of moves) depend on how much time the caller grants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.provisioning.nodepools.tiers import pools as nodepool_offers
from nodesmith.decisions.shadow.fleet import OTHERS, others
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import ON_DEMAND, RESERVED
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.ownership import is_foreign, is_marked, nodeclass_name, provider_id
from nodesmith.model.kubernetes.nodes import Node, parse_node
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.decoding import UNREADABLE
from nodesmith_cli.costs.commitments import covered_hourly_usd
from nodesmith_cli.costs.savings.assumptions import assumed_nodepools, in_zones
from nodesmith_cli.costs.savings.capacity import (
    Family,
    KeptNodes,
    Parts,
    Workload,
    daemonsets,
    families,
    held_by_rule,
    oversized,
    parts_by_node,
)
from nodesmith_cli.costs.savings.constraints import (
    Costs,
    SpotOption,
    constraint_costs,
    protection_costs,
    spot_option,
)
from nodesmith_cli.costs.savings.fleet import adopted, on_demand_only, with_accumulated_budgets
from nodesmith_cli.costs.savings.nodeprices import PricedNode, priced_nodes, total_hourly_usd
from nodesmith_cli.costs.savings.reading import Cluster, Usage
from nodesmith_cli.costs.savings.repacking import Reached, Repacked, reached, repacked
from nodesmith_cli.planning.checking import checked
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import Manifests
from nodesmith_cli.planning.nodeclasses import AVAILABLE, assumed_nodeclass
from nodesmith_formats.manifests.manifests import Document

_READ = frozenset({"NodePool", "EC2NodeClass"})
_CUSTOM = _READ | {"NodeClaim"}
_NOWHERE = "savings"


@dataclass(frozen=True, slots=True)
class Analysis:
    """The results of an analysis. Prices are USD an hour.

    `whole` is the plan for all pods. `on_demand` is the same without spot for pods that run on on-demand now.
    `nodepools` are the manifests that the plan buys from; `are_assumed` is True if they are not the cluster's own.
    `faults` are objects that could not be used, each in a sentence. `best_hourly_usd` is the lowest price found for all
    pods.
    """

    nodes: tuple[PricedNode, ...]
    pods: int
    pending: int
    now_hourly_usd: float
    whole: Repacked
    on_demand: Repacked
    moves: Reached
    parts: Mapping[str, Parts]
    held: tuple[KeptNodes, ...]
    protections: tuple[tuple[KeptNodes, float], ...]
    constraints: Costs
    spot: SpotOption | None
    families: tuple[Family, ...]
    daemonsets: tuple[Workload, ...]
    oversized: tuple[Workload, ...]
    nodepools: tuple[Mapping[str, Any], ...]
    are_assumed: bool
    faults: tuple[str, ...]
    claims_without_nodes: int
    foreign_nodepools: tuple[str, ...]

    @property
    def best_hourly_usd(self) -> float:
        """The lowest price of a plan for all pods, whether made from scratch or reached by moves."""
        return min(self.whole.hourly_usd, self.moves.hourly_usd, self.now_hourly_usd)

    @property
    def bound_hourly_usd(self) -> float:
        """A price that no plan for all pods under these NodePools can undercut."""
        return min(self.whole.bound_hourly_usd, self.best_hourly_usd)

    @property
    def priced(self) -> tuple[PricedNode, ...]:
        """The nodes with a known price."""
        return tuple(node for node in self.nodes if node.price is not None)


def parsed_nodes(manifests: Iterable[Mapping[str, Any]]) -> tuple[list[Node], list[str]]:
    """Return the readable Nodes, and a sentence about each unreadable one."""
    nodes: list[Node] = []
    faults: list[str] = []
    for manifest in manifests:
        try:
            nodes.append(parse_node(manifest))
        except UNREADABLE as error:
            name = (manifest.get("metadata") or {}).get("name")
            faults.append(f"Node/{name}: cannot be read and is left out: {error!r}")
    return nodes, faults


@dataclass(frozen=True, slots=True)
class Prepared:
    """A cluster ready for analysis: its priced nodes, and the inputs of decisions with the NodePools to plan with."""

    nodes: tuple[PricedNode, ...]
    inputs: Inputs
    nodepools: tuple[Mapping[str, Any], ...]
    are_assumed: bool
    faults: tuple[str, ...]
    claims_without_nodes: int
    foreign_nodepools: tuple[str, ...]


def prepared(
    cluster: Cluster, nodes: Sequence[Node], catalog: Catalog, settings: NodeSettings, now: datetime
) -> Prepared:
    """Return the cluster's nodes with prices, and inputs with its own NodePools or assumed ones.

    Raises Rejected if no node has a price, because there is nothing to compare.
    """
    claims = cluster.of_kind("NodeClaim")
    marked = [provider_id(claim) for claim in claims if is_marked(claim)]
    priced = tuple(
        priced_nodes(nodes, catalog, marked, has_cluster_autoscaler=cluster.has_cluster_autoscaler)
    )
    if not any(node.price for node in priced):
        reason = f": {priced[0].name}: {priced[0].unknown}" if priced else ""
        if len(priced) == 1:
            raise Rejected(f"the price of the cluster's only node is not known{reason}")
        raise Rejected(f"none of the cluster's {len(priced):,} nodes has a known price{reason}")
    custom, faults = checked(document for document in cluster.documents if document.manifest["kind"] in _READ)
    pools = [document.manifest for document in custom if document.manifest["kind"] == "NodePool"]
    ours = [pool for pool in pools if not is_foreign(pool)]
    classes = [without_free_reservations(e.manifest) for e in custom if e.manifest["kind"] == "EC2NodeClass"]
    used = ours or assumed_nodepools(priced, cluster.of_kind("Pod"))
    nodeclasses, nodepools = _split(used)
    own = {str(nodeclass["metadata"]["name"]) for nodeclass in (*classes, *nodeclasses)}
    lacking = sorted({*map(nodeclass_name, nodepools)} - own - {""})
    assumed = [in_zones(nodeclass, priced) for nodeclass in (*nodeclasses, *map(assumed_nodeclass, lacking))]
    rest = [document for document in cluster.documents if document.manifest["kind"] not in _CUSTOM]
    planned = [
        *map(with_accumulated_budgets, nodepools),
        *classes,
        *assumed,
        *others(assumed_nodeclass(OTHERS)),
    ]
    made = tuple(Document(manifest, _NOWHERE, n) for n, manifest in enumerate(planned, start=1))
    inputs = plan_inputs(Manifests((*rest, *made)), catalog, settings=settings, now=now)
    shown = {node.node.provider_id for node in priced} - {""}
    return Prepared(
        priced,
        inputs,
        (*nodeclasses, *nodepools),
        not ours,
        (*(str(f) for f in faults if not f.field.endswith(AVAILABLE)), *inputs.snapshot.problems),
        sum(provider_id(claim) not in shown for claim in claims),
        tuple(sorted(str(p["metadata"]["name"]) for p in pools if is_foreign(p))),
    )


def without_free_reservations(nodeclass: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an EC2NodeClass whose capacity reservations have no free instances, because their number is not known."""
    status = nodeclass.get("status")
    held = status.get("capacityReservations") if isinstance(status, Mapping) else None
    if not isinstance(status, Mapping) or not isinstance(held, list):
        return nodeclass
    full = [{AVAILABLE: 0, **reservation} for reservation in held if isinstance(reservation, Mapping)]
    return {**nodeclass, "status": {**status, "capacityReservations": full}}


def _split(
    manifests: Iterable[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return EC2NodeClasses and NodePools."""
    manifests_left = list(manifests)
    return [m for m in manifests_left if m["kind"] == "EC2NodeClass"], [
        m for m in manifests_left if m["kind"] == "NodePool"
    ]


def _always() -> bool:
    return True


def _on_demand_nodes(nodes: Iterable[PricedNode]) -> frozenset[str]:
    return frozenset(node.name for node in nodes if node.capacity_type in (ON_DEMAND, RESERVED))


def _pinned_to(free: Inputs, keys: frozenset[str]) -> Inputs:
    return replace(free, snapshot=on_demand_only(free.snapshot, keys))


def analysed(
    ready: Prepared, usage: Usage, budget: Callable[[], Callable[[], bool]] = lambda: _always
) -> Analysis:
    """Analyse a cluster. `budget` begins an optional part, and returns a function that is True while it has time."""
    adopted_nodes, nodes = adopted(ready.inputs, ready.nodes), ready.nodes
    snapshot, catalog = adopted_nodes.inputs.snapshot, ready.inputs.catalog
    whole = repacked(adopted_nodes.inputs)
    paid = _on_demand_nodes(nodes)
    everyone = frozenset(pod.key for pod in snapshot.pods if pod.node in paid)
    on_demand = (
        whole if everyone == adopted_nodes.pinned else repacked(_pinned_to(adopted_nodes.free, everyone))
    )
    moves = reached(adopted_nodes.inputs, budget())
    parts = parts_by_node(nodes, snapshot)
    constraints = held_by_rule(moves.blocked, nodes, parts, snapshot.pods)
    spot = spot_option(adopted_nodes.free, adopted_nodes.pinned)
    has_time = budget()
    protections = protection_costs(adopted_nodes.inputs, constraints, has_time)
    costs = constraint_costs(adopted_nodes.inputs, whole, adopted_nodes.pinned, has_time)
    offers = nodepool_offers(
        snapshot,
        adopted_nodes.inputs.ledger,
        catalog,
        adopted_nodes.inputs.settings,
        adopted_nodes.inputs.now,
    )
    allowed = {choice.type.name for template in offers.templates for choice in template.choices}
    obstacles = [
        f"NodePool {name} launches nothing: {reason}"
        for name, reason in offers.obstacles.items()
        if name != OTHERS
    ]
    return Analysis(
        nodes,
        len(snapshot.pods),
        len(ready.inputs.snapshot.pods) - len(snapshot.pods),
        total_hourly_usd(nodes) - covered_hourly_usd(adopted_nodes.inputs),
        whole,
        on_demand,
        moves,
        parts,
        tuple(constraints),
        tuple(protections),
        costs,
        spot,
        tuple(families(nodes, catalog, allowed)),
        tuple(daemonsets(nodes, snapshot)),
        tuple(oversized(nodes, snapshot, usage)),
        ready.nodepools,
        ready.are_assumed,
        (*ready.faults, *obstacles),
        ready.claims_without_nodes,
        ready.foreign_nodepools,
    )
