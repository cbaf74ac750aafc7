"""What provisioning makes of moves under way: their sources take nobody, and what replaces them is taken already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodesmith.decisions.scheduling.nodes.existing import ExistingNode, existing_node_of, is_closed, is_going
from nodesmith.model.apimachinery.taints import DISRUPTED
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def with_sources_closed(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """Return the snapshot in which the Nodes of moves under way are tainted, though it may not show yet."""
    sources = ledger.sources
    closed = {claim.provider_id for claim in ledger.claims if claim.name in sources and claim.provider_id}
    if not closed:
        return snapshot

    def seen(node: Node) -> Node:
        if node.provider_id not in closed or is_closed(node):
            return node
        return replace(node, taints=(*node.taints, DISRUPTED))

    return replace(snapshot, nodes=tuple(map(seen, snapshot.nodes)))


def keep_for_sources(free: Sequence[ExistingNode], snapshot: Snapshot, ledger: Ledger) -> None:
    """Keep the room that moves have bought for the pods that still run on the nodes that are to go."""
    coming = ledger.replacements
    if not coming:
        return
    staying = {node.name for node in snapshot.nodes if not is_going(node)}
    elsewhere = {pod.key: pod for pod in snapshot.pods if pod.node in staying and not pod.deleting}
    for claim in ledger.claims:
        existing = (
            existing_node_of(claim, free, snapshot) if claim.name in coming and not claim.is_ending else None
        )
        if existing is None:
            continue
        for pod in filter(None, map(elsewhere.get, claim.nominated)):
            if pod.node != existing.name:
                existing.keep(pod.shape)
