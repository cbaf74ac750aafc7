"""The usage of a NodePool: its nodes from launch until termination begins, and their total resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodesmith.model.apimachinery.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Resources,
    format_resources,
    total,
)
from nodesmith.model.ec2.attachablevolumes import of_a_node
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.snapshot import Snapshot

_SERVING = frozenset({Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED})
_ALWAYS_SHOWN = Resources(dict.fromkeys((CPU, EPHEMERAL_STORAGE, MEMORY, PODS), 0))


def usage(nodepool: str, claims: Sequence[NodeClaim], snapshot: Snapshot) -> dict[str, Any]:
    """Return `status.nodes` and `status.resources` of a NodePool.

    Nodes that are terminating do not count, as in Karpenter. A Node without a claim counts with the capacity it shows.
    """
    claimed = {claim.provider_id for claim in claims}
    found = [each.capacity for each in claims if each.nodepool == nodepool and each.phase in _SERVING]
    found += [
        node.capacity
        for node in snapshot.nodes_in(nodepool)
        if node.provider_id not in claimed and not node.deleting
    ]
    resources = total([_ALWAYS_SHOWN, *map(of_a_node, found), Resources({"nodes": len(found)})])
    return {"nodes": len(found), "resources": format_resources(resources)}
