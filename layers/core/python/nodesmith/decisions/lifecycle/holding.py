"""Holding: a new Node is reserved for its DaemonSets' pods until they are bound, if its NodePool requests it.

kube-scheduler guarantees no order: other pods may fill a node first, and a DaemonSet's pod then stays pending or
preempts them. A held Node is cordoned. The pods of every DaemonSet tolerate that, by tolerations that Kubernetes adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nodesmith.decisions.scheduling.existing import awaited_daemons
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot


def is_held(claim: NodeClaim) -> bool:
    """Return whether a claim's Node is cordoned for its DaemonSets. Initialization ends that."""
    return claim.phase is Phase.REGISTERED and claim.held_until is not None


def awaited(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> dict[str, tuple[str, ...]]:
    """Return the DaemonSets (namespace/name) whose pods held Nodes wait for, by claim name; none after `held_until`."""
    held = {c.node_name: c for c in claims if is_held(c) and c.held_until is not None and now < c.held_until}
    if not held:
        return {}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node in held:
            pods.setdefault(pod.node, []).append(pod)
    found: dict[str, tuple[str, ...]] = {}
    for node in snapshot.nodes:
        claim = held.get(node.name)
        if claim is not None and node.provider_id == claim.provider_id:
            missing = awaited_daemons(node, claim, pods.get(node.name, ()), snapshot.daemonsets)
            names = {f"{each.namespace}/{each.owner.partition('/')[2]}" for each in missing}
            found[claim.name] = tuple(sorted(names))
    return found
