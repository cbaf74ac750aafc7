"""The state of the cluster at one moment: an input of every decision, beside the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nodesmith.model.apimachinery.labels import NODEPOOL, REGISTERED
from nodesmith.model.ec2.attachlimits import NO_LIMITS, AttachLimits
from nodesmith.model.karpenter.claimednodes import ClaimedNodes
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.poddisruptionbudgets import PodDisruptionBudget
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.kubernetes.shapes import Shape
from nodesmith.model.kubernetes.volumeattachments import VolumeAttachment

if TYPE_CHECKING:  # see ClaimedNodes
    from nodesmith.model.karpenter.nodeclaims import NodeClaim


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading of a cluster.

    `daemonsets` are the pod templates of its DaemonSets. NodePools, EC2NodeClasses and NodeClaims stay manifests, so
    that each reader decides what an invalid one means. `attachments` are those of ending nodes, as far as the snapshot
    shows: the node is tainted `karpenter.sh/disrupted`, or it or its NodeClaim is being deleted. `problems` are objects
    that could not be read at all.

    `nodepools` and `nodeclaims` are those that nodesmith serves. `foreign_nodepools` are those of other software, such
    as EKS Auto Mode. They explain which software a Node belongs to, and no decision reads them.
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
    _claimed: ClaimedNodes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the lookup of Nodes by claim."""
        object.__setattr__(self, "_claimed", ClaimedNodes(self.nodes))

    def node_of(self, claim: NodeClaim) -> Node | None:
        """Return a claim's Node, None if it has none; of several with its provider id, the one that registered."""
        return self._claimed.of(claim)

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

    def shown_nodeclaims(self) -> dict[str, Mapping[str, Any]]:
        """Return the NodeClaim objects by name."""
        return {str((m.get("metadata") or {}).get("name")): m for m in self.nodeclaims}
