"""The observed cluster itself: the inputs of decisions about its pods, and what its own nodes came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from nodesmith.decisions.provisioning import Inputs, as_read
from nodesmith.decisions.shadow.fleet import (
    ASSUMED,
    OTHERS,
    ObservedNode,
    assumed_nodeclass,
    others,
    seen_nodes,
    statuses,
)
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, DISRUPTED, SPOT, ZONE
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.costs.shadow import Assumptions, Shadow, Tally
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.ownership import provider_id
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.status import ClusterInfo
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot

LONGEST_STEP = timedelta(minutes=15)
"""The time after which what happened in between is not known well enough to be counted."""
JOINS = timedelta(seconds=25)
"""How long an instance runs before its Node exists, where no NodeClaim shows it."""
_SHORTEST_BOOT, _LONGEST_BOOT = 5.0, 900.0
_MOST_BOOTS = 64
_ZONES = 3
_SERVICES, _VERSION = "10.100.0.0/16", "1.34"
_ENDING = frozenset({DISRUPTED.identity, REGISTERED_UNSCHEDULABLE.identity})
_ENDS = "ToBeDeletedByClusterAutoscaler"


@dataclass(frozen=True, slots=True)
class View:
    """What a step sees: the inputs of decisions with the cluster's own pods and nodes, and its nodes with prices.

    `boot` is how long a new node takes until pods run on it.
    """

    inputs: Inputs
    nodes: Sequence[ObservedNode]
    boot: timedelta
    assumed: Assumptions = field(default_factory=Assumptions)

    @property
    def now(self) -> datetime:
        """The time of the step."""
        return self.inputs.now

    def pods(self) -> list[Pod]:
        """Return the pods that a fleet must run, in the order of their creation.

        These are all but those that belong to their node, and those on nodes without a known price.
        """
        unknown = {observed.node.name for observed in self.nodes if observed.price is None}
        pods = [p for p in self.inputs.snapshot.pods if p.shape.moves and p.node not in unknown]
        return sorted(pods, key=lambda pod: (pod.created_at, pod.key))


def view_of(
    snapshot: Snapshot,
    catalog: Catalog,
    settings: NodeSettings,
    now: datetime,
    boot_seconds: float = 0.0,
    assumed: Assumptions | None = None,
) -> View:
    """Return what a step sees in a snapshot. `boot_seconds` is what earlier steps have learned, 0 if nothing."""
    assumptions = assumed or Assumptions()
    nodes = seen_nodes(snapshot.nodes, catalog)
    pool, nodeclass = others(assumed_nodeclass(OTHERS))
    adapted = replace(
        snapshot,
        nodepools=(*snapshot.nodepools, pool),
        nodeclasses=(*snapshot.nodeclasses, nodeclass),
        nodeclaims=(),
        attachments=(),
        capacitybuffers=(),
        requests=(),
        grown=(),
        karpenter=None,
    )
    cluster = ClusterInfo(snapshot.cluster, "https://cluster.invalid", "", _SERVICES, _VERSION)
    resolved = statuses(adapted.nodeclasses, _zones(nodes, catalog))
    ledger = as_read(Ledger(nodeclasses=resolved, cluster=cluster), adapted)
    inputs = Inputs(adapted, ledger, catalog, settings.in_cluster(cluster), now, ASSUMED)
    return View(inputs, nodes, timedelta(seconds=boot_seconds or assumptions.boot_seconds), assumptions)


def _zones(nodes: Sequence[ObservedNode], catalog: Catalog) -> tuple[str, ...]:
    """Return the zones that are assumed to have subnets if no EC2NodeClass shows any: those of the nodes."""
    zones = sorted(
        {observed.node.labels.get(ZONE, "") for observed in nodes if observed.price is not None} - {""}
    )
    if zones:
        return tuple(zones)
    offered = {offering.zone for offerings in catalog.offerings.values() for offering in offerings}
    return tuple(sorted(offered, key=lambda zone: (len(zone), zone))[:_ZONES])


def workload_of(pod: Pod) -> str:
    """Return the namespace and the owner of a pod."""
    return f"{pod.shape.namespace}/{pod.shape.owner}"


def boot_shown(snapshot: Snapshot) -> float:
    """Return the median of how many seconds the youngest nodes took from their purchase to Ready, 0 if none shows it.

    A node whose kubelet was away becomes Ready again much later, which is no boot.
    """
    starts = _creation_times(snapshot)
    boots: list[tuple[datetime, float]] = []
    for node in snapshot.nodes:
        ready = node.conditions.get("Ready")
        if ready is None or ready.status != "True" or ready.since is None:
            continue
        seconds = (ready.since - _paid_since(node, starts)).total_seconds()
        if _SHORTEST_BOOT <= seconds <= _LONGEST_BOOT:
            boots.append((node.created_at, seconds))
    youngest = sorted(boots, reverse=True)[:_MOST_BOOTS]
    return float(median(seconds for _, seconds in youngest)) if youngest else 0.0


def _creation_times(snapshot: Snapshot) -> Mapping[str, datetime]:
    """Return when NodeClaims were created, by provider id."""
    starts = {}
    for manifest in snapshot.nodeclaims:
        created = (manifest.get("metadata") or {}).get("creationTimestamp")
        try:
            starts[provider_id(manifest)] = parse_time(str(created))
        except ValueError:
            continue
    return starts


def _paid_since(node: Node, starts: Mapping[str, datetime]) -> datetime:
    return min(starts.get(node.provider_id, node.created_at - JOINS), node.created_at)


def actual(before: Shadow, snapshot: Snapshot, view: View) -> tuple[Tally, float]:
    """Return what the cluster itself came to since the last look, and the node-seconds without a known price."""
    now = view.now
    since = max(before.at, now - LONGEST_STEP)
    starts, usd, spot, seconds, unpriced, launches = _creation_times(snapshot), 0.0, 0.0, 0.0, 0.0, 0
    for observed in view.nodes:
        is_new = observed.node.created_at > since
        start = _paid_since(observed.node, starts) if is_new else since
        span = max(0.0, (now - start).total_seconds())
        if observed.price is None:
            unpriced += span
            continue
        launches += is_new
        usd += observed.price * span / 3600
        spot += observed.price * span / 3600 if observed.node.labels.get(CAPACITY_TYPE) == SPOT else 0.0
        seconds += span
    return Tally(
        usd=usd,
        spot_usd=spot,
        node_seconds=seconds,
        pending_seconds=_pending_seconds(before, view, since),
        evictions=_evictions(before, view),
        launches=launches,
    ), unpriced


def _pending_seconds(before: Shadow, view: View, since: datetime) -> float:
    total = 0.0
    for pod in view.pods():
        if (pod.node and pod.key not in before.waiting) or pod.deleting:
            continue
        total += max(0.0, (view.now - max(pod.created_at, since)).total_seconds())
    return total


def _evictions(before: Shadow, view: View) -> int:
    """Return how many pods have left nodes that were about to end."""
    present = {pod.key for pod in view.pods() if not pod.deleting}
    return len(before.closing - present)


def waiting(view: View) -> frozenset[str]:
    """Return the pods that have no node in the cluster."""
    return frozenset(pod.key for pod in view.pods() if not pod.node and not pod.deleting)


def closing(view: View) -> frozenset[str]:
    """Return the pods on nodes that are about to end: being deleted, cordoned, or tainted by an autoscaler."""
    ends = {observed.node.name for observed in view.nodes if _is_ending(observed.node)}
    return frozenset(pod.key for pod in view.pods() if pod.node in ends and not pod.deleting)


def _is_ending(node: Node) -> bool:
    return node.deleting or any(taint.identity in _ENDING or taint.key == _ENDS for taint in node.taints)


def faults_of(snapshot: Snapshot, view: View) -> list[str]:
    """Return what could not be used or is doubtful, each in a sentence."""
    faults = [
        f"Node/{observed.node.name}: {observed.reason}: it counts for neither side"
        for observed in view.nodes
        if observed.price is None
    ]
    provider_ids = {node.provider_id for node in snapshot.nodes} - {""}
    for manifest in snapshot.nodeclaims:
        name, provider = str((manifest.get("metadata") or {}).get("name")), provider_id(manifest)
        if not provider:
            faults.append(f"NodeClaim/{name}: it has no instance, so it counts for neither side")
        elif provider not in provider_ids:
            faults.append(f"NodeClaim/{name}: its instance has no Node, so it counts for neither side")
    if not snapshot.nodepools:
        faults.append(
            "there is no NodePool, so the shadows buy nothing and only remove nodes: apply those of `nodesmith migrate`"
            " or of `nodesmith savings --write-nodepools`"
        )
    return [*faults, *_two_autoscalers(snapshot), *snapshot.problems]


def _two_autoscalers(snapshot: Snapshot) -> list[str]:
    """Return a sentence if Nodes show that more than one Karpenter launches them: one that serves older kinds."""
    nodes: Sequence[Mapping[str, Any]] = [node.labels for node in snapshot.nodes]
    current = sum("karpenter.sh/nodepool" in labels for labels in nodes)
    older = sum("karpenter.sh/provisioner-name" in labels for labels in nodes)
    if not (current and older):
        return []
    counts = f"{current} nodes belong to NodePools and {older} to Provisioners"
    return [f"two Karpenters: {counts}; the cluster's own side counts the nodes of both"]
