"""Surplus: static NodePools that have more nodes than `spec.replicas` remove those that matter least.

The order is Karpenter's: claims without a Node, then empty nodes, then nodes without do-not-disrupt, then by the number
of pods that have to move; among equals the zone with the most nodes comes first, and there the newest node. Disruption
budgets do not apply; the nodes are drained as usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.commands import End
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot

SCALED_DOWN = "ScaledDown"
"""The cause of these terminations."""


@dataclass(frozen=True, slots=True)
class _Load:
    """What runs on a Node: the number of pods that would have to move, and whether do-not-disrupt protects it."""

    pods: int = 0
    is_protected: bool = False


def surplus(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> list[End]:
    """Return the terminations that begin now, by NodePool."""
    static = {name: pool.replicas for name, pool in pools.items() if pool.replicas is not None}
    if not static:
        return []
    serving = [
        c for c in claims if c.nodepool in static and not c.is_ending and c.phase is not Phase.GIVEN_UP
    ]
    counts = Counter(claim.nodepool for claim in serving)
    too_many = {name: counts[name] - wanted for name, wanted in static.items() if counts[name] > wanted}
    if not too_many:
        return []
    loads, shown = _loads(snapshot), {str(m["metadata"]["name"]): m for m in snapshot.nodeclaims}
    return [
        End(
            claim.terminating(
                SCALED_DOWN,
                f"NodePool {name} has {counts[name]} nodes and replicas is {static[name]}",
                now,
                deadline_of(claim, shown.get(claim.name), now),
            )
        )
        for name in sorted(too_many)
        for claim in _least([c for c in serving if c.nodepool == name], loads, too_many[name])
    ]


def _least(mine: Sequence[NodeClaim], loads: Mapping[str, _Load], count: int) -> list[NodeClaim]:
    left, going = list(mine), []
    for _ in range(count):
        zones = Counter(claim.zone for claim in left)

        def rank(claim: NodeClaim, zones: Counter[str] = zones) -> tuple[object, ...]:
            load = loads.get(claim.node_name, _Load()) if claim.node_name else _Load()
            is_node = bool(claim.node_name)
            newest = -claim.created_at.timestamp()
            return (
                is_node,
                load.pods > 0,
                load.is_protected,
                load.pods,
                -zones[claim.zone],
                newest,
                claim.name,
            )

        going.append(min(left, key=rank))
        left.remove(going[-1])
    return going


def _loads(snapshot: Snapshot) -> dict[str, _Load]:
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node and not (pod.shape.is_daemon or pod.shape.is_static or pod.deleting):
            pods.setdefault(pod.node, []).append(pod)
    return {
        node.name: _Load(
            len(pods.get(node.name, ())),
            node.annotations.get(DO_NOT_DISRUPT) == "true"
            or any(pod.shape.annotations.get(DO_NOT_DISRUPT) == "true" for pod in pods.get(node.name, ())),
        )
        for node in snapshot.nodes
    }
