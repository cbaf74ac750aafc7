"""The state of the cluster at one moment: an input of every decision, like the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from nodesmith.model.apimachinery.labels import NODEPOOL, PREPARING, REGISTERED, TENANCY
from nodesmith.model.apimachinery.requirements import parse_selector
from nodesmith.model.ec2.capacity import NO_LIMITS, AttachLimits
from nodesmith.model.ec2.instancetypes import needs_dedicated
from nodesmith.model.kubernetes.devices import ClusterDevices
from nodesmith.model.kubernetes.evictions import PodDisruptionBudget
from nodesmith.model.kubernetes.nodes import Node, VolumeAttachment
from nodesmith.model.kubernetes.pods import GrownWorkload, Pod, PodTemplate, Shape, Spread
from nodesmith.model.kubernetes.provisioningrequests import ProvisioningRequest
from nodesmith.model.policies import DefaultSpread

if TYPE_CHECKING:
    from nodesmith.model.karpenter.nodeclaims import NodeClaim
    from nodesmith.model.karpenter.ownership import KarpenterSign


class Simulated(Protocol):
    """The devices of future nodes, as far as pods request them as resources."""

    def on(self, pool: str, types: Any) -> Any:
        """Return the TypeSet of a NodePool with their devices as resources."""

    def known(self, claims: Iterable[NodeClaim]) -> list[NodeClaim]:
        """Return NodeClaims that offer what their nodes will have."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading of a cluster.

    `daemonsets` are the pod templates of its DaemonSets. NodePools, EC2NodeClasses, NodeClaims and NodeOverlays stay
    manifests, so that each reader decides what an invalid one means. `attachments` are those of ending nodes, as far as
    the snapshot shows: the node is tainted `karpenter.sh/disrupted`, or it or its NodeClaim is being deleted.
    `problems` are objects that could not be read at all.

    `nodepools` and `nodeclaims` are those that nodesmith serves. `foreign_nodepools` are those of other software, such
    as EKS Auto Mode. They explain which software a Node belongs to, and no decision reads them. `karpenter` is the last
    sign that a Karpenter controller runs, None if there never was one.
    """

    cluster: str
    taken_at: datetime
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    daemonsets: tuple[Shape, ...] = ()
    nodepools: tuple[Mapping[str, Any], ...] = ()
    nodeclasses: tuple[Mapping[str, Any], ...] = ()
    nodeclaims: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    attachments: tuple[VolumeAttachment, ...] = ()
    attach_limits: AttachLimits = NO_LIMITS
    foreign_nodepools: tuple[Mapping[str, Any], ...] = ()
    nodeoverlays: tuple[Mapping[str, Any], ...] = ()
    podtemplates: Mapping[str, PodTemplate] = field(default_factory=dict)
    """The pod templates that planned pods may be rendered from, by `PodTemplate.key`."""
    capacitybuffers: tuple[Mapping[str, Any], ...] = ()
    """Manifests, like NodePools."""
    quotas: tuple[Mapping[str, Any], ...] = ()
    """CapacityQuotas, as manifests."""
    requests: tuple[ProvisioningRequest, ...] = ()
    devices: ClusterDevices | None = None
    """The devices of dynamic resource allocation, None while no pod claims any."""
    simulated: Simulated | None = None
    """In a decision, once the claims of pods have become requests; None before, and where no pod claims devices."""
    karpenter: KarpenterSign | None = None
    grown: tuple[GrownWorkload, ...] = ()
    """Workloads whose pods are planned before they exist."""
    _claimed: ClaimedNodes = field(init=False, repr=False, compare=False)
    _indexes: _Indexes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare what is looked up or computed on first use."""
        object.__setattr__(self, "_claimed", ClaimedNodes(self.nodes))
        object.__setattr__(self, "_indexes", _Indexes(self.pods, self.attachments, self.nodeclaims))

    def asks_for_dedicated(self) -> bool:
        """Return whether some pods ask for hardware that is not shared with other accounts."""
        return self._indexes.asks_for_dedicated

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods on the Node of this name, in the order of the snapshot."""
        return self._indexes.pods.get(node, ())

    def attachments_on(self, node: str) -> Sequence[VolumeAttachment]:
        """Return the volumes that are attached to the Node of this name."""
        return self._indexes.attachments.get(node, ())

    def node_of(self, claim: NodeClaim) -> Node | None:
        """Return a claim's Node, None if it has none; of several with its provider id, the one that registered."""
        return self._claimed.of(claim)

    def host_of(self, claim: NodeClaim) -> str:
        """Return the name by which plans know a claim's node: that of its Node, or of the claim until it has one."""
        node = self.node_of(claim)
        return claim.name if node is None else node.name

    def nodes_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return all Nodes with a claim's provider id and a name that its instance may have: usually at most one."""
        return self._claimed.all_of(claim)

    def impostors_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return the Nodes with a claim's provider id and a name that its instance cannot have."""
        return self._claimed.impostors_of(claim)

    def nodes_in(self, nodepool: str) -> list[Node]:
        """Return a NodePool's Nodes, one for each provider id: the one that registered if several share it."""
        mine = [node for node in self.nodes if node.labels.get(NODEPOOL) == nodepool]
        mine.sort(key=lambda node: node.labels.get(REGISTERED) == "true")
        return list({node.provider_id or node.name: node for node in mine}.values())

    def shown_nodeclaims(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the NodeClaim objects by name."""
        return self._indexes.nodeclaims


# Nodes are matched to claims by provider id and, if several Nodes have that id, by registration.
#
# Anyone who may create Nodes can write any provider id into one. A kubelet, however, can only create a Node whose
# name is bound to its instance. So a Node with a name other than EC2 gave the instance belongs to no claim.
#
# A restored Node (from a backup, by `kubectl replace --force`) may lack its provider id, which no other component
# puts back. It is matched by its name and by the registered label, which a Node that is just joining does not
# have.
class ClaimedNodes:
    """Finds the Nodes of claims. A second Node with a provider id belongs to no claim: it has no machine of its own."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def of(self, claim: NodeClaim) -> Node | None:
        """Return the claim's Node, or None if it has none."""
        nodes = self.all_of(claim)
        if len(nodes) < 2:
            return nodes[0] if nodes else None
        # The NodeClaim does not always name the Node that registered, but that Node's label shows it.
        return min(nodes, key=lambda n: (n.name != claim.node_name, n.labels.get(REGISTERED) != "true"))

    def all_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return all Nodes with the claim's provider id, or the restored Node that lacks it if no Node has it.

        Nodes whose name the claim's instance cannot have are left out, and so is the Node that its instance had before
        it was stopped.
        """
        nodes = self._by_provider.get(claim.provider_id, ()) or self._restored.get(claim.node_name, ())
        if claim.started_at is not None:
            nodes = [node for node in nodes if PREPARING not in node.labels]
        if not claim.private_dns_name:
            return nodes
        return [node for node in nodes if claim.may_be_named(node.name)]

    def impostors_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return the Nodes with the claim's provider id and a name that its instance cannot have."""
        return [n for n in self._by_provider.get(claim.provider_id, ()) if not claim.may_be_named(n.name)]

    @cached_property
    def _by_provider(self) -> dict[str, list[Node]]:
        """Built on first use: code that derives many snapshots looks up claims in only a few of them."""
        by_provider: dict[str, list[Node]] = {}
        for node in self._nodes:
            if node.provider_id:
                by_provider.setdefault(node.provider_id, []).append(node)
        return by_provider

    @cached_property
    def _restored(self) -> dict[str, list[Node]]:
        return {node.name: [node] for node in self._nodes if node.is_restored}


class _Indexes:
    """What is looked up in a snapshot. Built on first use: code that derives many snapshots looks up little in most."""

    def __init__(
        self,
        pods: Sequence[Pod],
        attachments: Sequence[VolumeAttachment],
        nodeclaims: Sequence[Mapping[str, Any]],
    ) -> None:
        self._pods, self._attachments, self._nodeclaims = pods, attachments, nodeclaims

    @cached_property
    def pods(self) -> dict[str, list[Pod]]:
        by_node: dict[str, list[Pod]] = {}
        for pod in self._pods:
            if pod.node:
                by_node.setdefault(pod.node, []).append(pod)
        return by_node

    @cached_property
    def attachments(self) -> dict[str, list[VolumeAttachment]]:
        by_node: dict[str, list[VolumeAttachment]] = {}
        for attachment in self._attachments:
            by_node.setdefault(attachment.node, []).append(attachment)
        return by_node

    @cached_property
    def nodeclaims(self) -> dict[str, Mapping[str, Any]]:
        return {str((m.get("metadata") or {}).get("name")): m for m in self._nodeclaims}

    @cached_property
    def asks_for_dedicated(self) -> bool:
        shapes = {id(pod.shape): pod.shape for pod in self._pods}.values()
        return any(TENANCY in term and needs_dedicated(term) for shape in shapes for term in shape.terms)


_SPREAD_OWNERS = ("ReplicaSet/", "StatefulSet/", "ReplicationController/")
_OWNER_LABEL = "nodesmith.dev/controller"
"""Stands for the controller's selector. No pod in the cluster has this label, and no other selector uses it."""


# kube-scheduler counts the pods that a pod's Services and its ReplicaSet, StatefulSet or ReplicationController
# select together. This module counts the pods of the same controller. The result is the same unless Services
# select only some of them. A pod that only Services select gets no default constraints.
def with_default_spreads(snapshot: Snapshot, defaults: Sequence[DefaultSpread]) -> Snapshot:
    """Return the snapshot with these default constraints applied, as kube-scheduler sees it."""
    if not defaults:
        return snapshot
    changed: dict[Shape, Shape] = {}
    for pod in snapshot.pods:
        if pod.shape not in changed:
            changed[pod.shape] = _spread(pod.shape, defaults)
    return replace(snapshot, pods=tuple(replace(pod, shape=changed[pod.shape]) for pod in snapshot.pods))


def _spread(shape: Shape, defaults: Sequence[DefaultSpread]) -> Shape:
    """Return the shape with the label that counts pods of its controller, and with the defaults if they apply."""
    if not shape.owner.startswith(_SPREAD_OWNERS):
        return shape
    owner_labels = {_OWNER_LABEL: shape.owner}
    labels = {**shape.labels, **owner_labels}
    if shape.spreads:
        return replace(shape, labels=labels)
    selector = parse_selector({"matchLabels": owner_labels})
    spreads = (Spread(default.topology_key, default.max_skew, default.hard, selector) for default in defaults)
    return replace(shape, labels=labels, spreads=tuple(spreads))
