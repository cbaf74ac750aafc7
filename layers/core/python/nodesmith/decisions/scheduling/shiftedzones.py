"""Zones that the cluster is shifted away from: their nodes take no more pods, and pods do not wait for those to come.

EKS cordons the nodes of such a zone. Until it has, decisions look at them as if it had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Node
from nodesmith.model.snapshot import Snapshot

_COMING = frozenset({Phase.PENDING, Phase.LAUNCHED, Phase.REGISTERED})


def with_zones_cordoned(snapshot: Snapshot, zones: Collection[str]) -> Snapshot:
    """Return the snapshot with the nodes in these zones cordoned."""
    if not zones:
        return snapshot

    def seen(node: Node) -> Node:
        if node.labels.get(ZONE) not in zones or REGISTERED_UNSCHEDULABLE in node.taints:
            return node
        return replace(node, taints=(*node.taints, REGISTERED_UNSCHEDULABLE))

    return replace(snapshot, nodes=tuple(map(seen, snapshot.nodes)))


def outside(claims: Iterable[NodeClaim], zones: Collection[str]) -> list[NodeClaim]:
    """Return the claims without those whose node is not ready yet and is, or will be, in one of these zones."""
    return [claim for claim in claims if claim.phase not in _COMING or zone_of(claim) not in zones]


def zone_of(claim: NodeClaim) -> str:
    """Return the zone where a claim's node is or will be; empty if it is not settled."""
    return claim.zone or claim.requirements.settled.get(ZONE, "")
