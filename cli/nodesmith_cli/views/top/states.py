"""The state of a node, the row of a NodeClaim without a node, and the reason why a pod was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.decisions.scheduling.existing import is_closed
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith_cli.costs.savings.capacity import ACCELERATORS
from nodesmith_cli.views.top.rows import Gauge, NodeRow, State
from nodesmith_formats.prices import Price
from nodesmith_formats.wording import printable

Manifest = Mapping[str, Any]
LONGEST = 300
"""The most characters of a message: texts in a cluster may be long."""
_INTERRUPTION_CAUSES = frozenset(InterruptionCause)
COMING = {
    Phase.PENDING: "EC2 is being asked for an instance",
    Phase.LAUNCHED: "the instance boots",
    Phase.REGISTERED: "the node registered and is not ready yet",
}


def claim_row(claim: NodeClaim) -> NodeRow:
    """Return the row of a NodeClaim that has no Node. A stopped instance costs its volumes, and has no room."""
    is_stopped = claim.phase is Phase.STOPPED
    room = NOTHING if is_stopped else claim.allocatable
    return NodeRow(
        claim.name,
        claim.nodepool,
        "",
        claim.instance_type,
        claim.zone,
        claim.capacity_type,
        Price(claim.stopped_price_hourly_usd, estimated=True) if is_stopped else None,
        Gauge(0, room.cpu_milli),
        Gauge(0, room.memory_bytes),
        Gauge(0, room.pods),
        Gauge(0, sum(room.of(gpu) for gpu in ACCELERATORS)),
        claim.created_at,
        State.DRAINING if claim.is_ending else State.STOPPED if is_stopped else State.LAUNCHING,
        printable((claim.message or COMING.get(claim.phase, ""))[:LONGEST]),
    )


def state_of(node: Node, claim: NodeClaim | None, *, is_cordoned: bool) -> tuple[State, str]:
    """Return the state of a node, and what it waits for."""
    if claim is not None and claim.is_ending:
        interrupted = claim.cause in _INTERRUPTION_CAUSES
        return (State.INTERRUPTED if interrupted else State.DRAINING), claim.message or claim.cause
    if node.deleting:
        return State.DRAINING, "its deletion was requested"
    if is_closed(node):
        return State.DISRUPTING, "it is part of a move that has begun"
    if claim is not None and claim.phase in COMING:
        return State.JOINING, claim.message or COMING[claim.phase]
    if not node.is_ready:
        ready = node.conditions.get("Ready")
        return State.NOT_READY, (ready.reason if ready else "") or "it reports no condition Ready"
    return (State.CORDONED, "") if is_cordoned else (State.READY, "")


def refusal_of(status: Manifest) -> str:
    """Return why kube-scheduler has not placed a pod, or an empty string."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""
