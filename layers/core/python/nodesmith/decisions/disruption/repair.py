"""Repair: which nodes have been unhealthy for so long that they are replaced, and which must not be replaced now.

The policies are those of Karpenter's AWS provider: which statuses of a Node's conditions are bad, and for how long. If
more than a fifth of the nodes of a NodePool or zone are unhealthy, the cause is not the nodes, and none is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.waiting import UNHEALTHY
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import first_after, format_time
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import DEFAULTS, NodePool, NodeRepair
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.snapshot import Snapshot

NO_SHIFTS: Mapping[str, ZonalShift] = FrozenMap()
MOST_UNHEALTHY_PERCENT = 20
PATIENCE = timedelta(hours=1)
"""How long an unhealthy node that is still Ready is drained within PodDisruptionBudgets before its pods are deleted."""
_REPAIRABLE = frozenset({Phase.REGISTERED, Phase.INITIALIZED})


@dataclass(frozen=True, slots=True)
class Policy:
    """A node whose condition `kind` has had one of `statuses` for `toleration` must be replaced."""

    kind: str
    statuses: frozenset[str]
    toleration: timedelta


_BAD = frozenset({"False"})
POLICIES = (
    Policy("Ready", frozenset({"False", "Unknown"}), timedelta(minutes=30)),
    Policy("AcceleratedHardwareReady", _BAD, timedelta(minutes=10)),
    Policy("StorageReady", _BAD, timedelta(minutes=30)),
    Policy("NetworkingReady", _BAD, timedelta(minutes=30)),
    Policy("KernelReady", _BAD, timedelta(minutes=30)),
    Policy("ContainerRuntimeReady", _BAD, timedelta(minutes=30)),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A node that has been unhealthy for long enough. `message` describes its condition, and since when.

    `ending` is the claim after its termination has begun, None if the node is only reported. `held_by` is then the
    reason why it is not replaced, empty if the NodePool asks for reports only.
    """

    claim: NodeClaim
    node: Node
    message: str
    ending: NodeClaim | None = None
    held_by: str = ""
    condition: str = ""
    """the Node's condition that is bad"""


def findings(
    claims: Sequence[NodeClaim],
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    now: datetime,
    shifted: Mapping[str, ZonalShift] = NO_SHIFTS,
) -> list[Finding]:
    """Return what to do about unhealthy nodes, in order of claim name.

    `pools` are the valid NodePools by name, `shifted` the zonal shifts in effect by zone. Nodes there are not replaced:
    what is wrong with them is most likely not their own fault.
    """
    pairs = [(c, node) for c in claims if c.registered_at and (node := snapshot.node_of(c)) is not None]
    ill = frozenset(claim.name for claim, node in pairs if _is_unhealthy(claim, node, now))
    manifests = snapshot.shown_nodeclaims()
    repairs: list[Finding] = []
    for claim, node in sorted(pairs, key=lambda pair: pair[0].name):
        mode = _mode(pools.get(claim.nodepool))
        message, kind = diagnosis(node, now), _failing(node, now)
        if kind is None or claim.phase not in _REPAIRABLE or mode is NodeRepair.OFF:
            continue
        held_by = (
            _held_by(claim, [other for other, _ in pairs], ill, shifted) if mode is NodeRepair.ON else ""
        )
        if held_by or mode is NodeRepair.REPORT:
            repairs.append(Finding(claim, node, message, held_by=held_by, condition=kind))
            continue
        deadlines = deadline_of(claim, manifests.get(claim.name), now), _deadline(node, now)
        ending = claim.terminating(UNHEALTHY, message, now, min(filter(None, deadlines)))
        repairs.append(Finding(claim, node, message, ending, condition=kind))
    return repairs


def next_change(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> datetime | None:
    """Return the first moment after `now` at which a node has been unhealthy for long enough, None if none is."""
    watched = (
        c for c in claims if c.phase in _REPAIRABLE and _mode(pools.get(c.nodepool)) is not NodeRepair.OFF
    )
    nodes = filter(None, map(snapshot.node_of, watched))
    return first_after(now, (moment for node in nodes for moment in _failing_from(node)))


def _failing_from(node: Node) -> Iterator[datetime]:
    for policy in POLICIES:
        condition = node.conditions.get(policy.kind)
        if condition is not None and condition.status in policy.statuses and condition.since is not None:
            yield condition.since + policy.toleration


def diagnosis(node: Node, now: datetime) -> str:
    """Return which condition has been bad for long enough, and since when; empty for none.

    The first policy that applies counts.
    """
    kind = _failing(node, now)
    condition = node.conditions.get(kind) if kind else None
    if condition is None or condition.since is None:
        return ""
    reason = f" ({condition.reason})" if condition.reason else ""
    return f"condition {kind} has been {condition.status} since {format_time(condition.since)}{reason}"


def _failing(node: Node, now: datetime) -> str | None:
    for policy in POLICIES:
        condition = node.conditions.get(policy.kind)
        if condition is None or condition.status not in policy.statuses or condition.since is None:
            continue
        if now - condition.since >= policy.toleration:
            return policy.kind
    return None


def _is_unhealthy(claim: NodeClaim, node: Node, now: datetime) -> bool:
    """Return whether a node counts for the circuit breaker: as soon as a condition is bad, but not while it starts."""
    states = ((policy, node.conditions.get(policy.kind)) for policy in POLICIES)
    is_bad = any(
        condition is not None and condition.status in policy.statuses for policy, condition in states
    )
    return claim.cause == UNHEALTHY or (is_bad and bool(claim.initialized_at or diagnosis(node, now)))


def _held_by(
    claim: NodeClaim, claims: Iterable[NodeClaim], ill: frozenset[str], shifted: Mapping[str, ZonalShift]
) -> str:
    shift = shifted.get(claim.zone)
    return str(shift) if shift is not None else _breaker(claim, claims, ill)


def _breaker(claim: NodeClaim, claims: Iterable[NodeClaim], ill: frozenset[str]) -> str:
    """Return where too many nodes are unhealthy, as text; empty if the node may be replaced."""
    all_claims = list(claims)
    pool = [c.name for c in all_claims if c.nodepool == claim.nodepool or not claim.nodepool]
    zone = [c.name for c in all_claims if c.zone == claim.zone]
    pool_scope = f"NodePool {claim.nodepool}" if claim.nodepool else "the cluster"
    for scope, names in ((pool_scope, pool), (f"zone {claim.zone}", zone)):
        sick = len(ill.intersection(names))
        if sick > -(-len(names) * MOST_UNHEALTHY_PERCENT // 100):
            return (
                f"{sick} of {len(names)} nodes of {scope} are unhealthy, more than {MOST_UNHEALTHY_PERCENT} %"
            )
    return ""


def _deadline(node: Node, now: datetime) -> datetime:
    """Return the deadline of the drain: now if the node is not Ready, since waiting would not help its pods."""
    return now + PATIENCE if node.is_ready else now


def _mode(pool: NodePool | None) -> NodeRepair:
    return pool.options.node_repair if pool is not None else DEFAULTS.node_repair
