"""How provisioning treats moves in progress: their sources take no pods, and their replacements are reserved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodesmith.decisions.scheduling.existing import ExistingNode, existing_node_of, is_closed, is_going
from nodesmith.model.apimachinery.taints import DISRUPTED
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def with_sources_closed(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """Return the snapshot with the source Nodes of moves in progress tainted, if it does not show that yet."""
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
    """Reserve the capacity that moves have bought for the pods that still run on their sources."""
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
