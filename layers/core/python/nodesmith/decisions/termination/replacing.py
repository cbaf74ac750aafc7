"""Replacement first: an ending node that is still Ready keeps its pods until they have another node.

Provisioning buys for the pods of a node as soon as its termination begins. If nodesmith chose to terminate it, the pods
are evicted only when the nodes bought for them are ready, or if none were bought.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from nodesmith.decisions.termination.evictions import must_go
from nodesmith.decisions.termination.waiting import AWAITING_REPLACEMENT, Waiting
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaims import COMING, NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Reason

EXPIRED = "Expired"
UNHEALTHY = "Unhealthy"
CLOSED = "ScheduleClosed"
"""The cause of terminations outside the windows of a NodePool's schedule."""
WARNED = frozenset(fate for fate in Fate if not fate.is_over)
"""Causes that EC2 announces. The replacement is bought in the run that reads the notice."""
CHOSEN = frozenset({EXPIRED, UNHEALTHY, CLOSED, *Reason}) | WARNED
"""Causes that nodesmith chose and can postpone for a while, or that leave some time."""
FIRST_LOOK = timedelta(seconds=30)
"""The time within which provisioning decides whether the pods need a node."""
FIRST_LOOK_WARNED = timedelta(seconds=10)
LONGEST_WAIT = timedelta(minutes=10)
"""How long pods wait for a replacement: Karpenter's minimum."""
HEAD_START = timedelta(seconds=12)
"""How much sooner than its grace requires a pod is deleted if EC2 takes its instance and budgets have kept the pod: a
look may be delayed by the one before, and EC2 does not wait."""
_COMING = COMING | {Phase.GIVEN_UP}
"""Phases of claims that are not ready yet. For a claim that was given up, another one is bought within moments."""


def replacement(claim: NodeClaim) -> Waiting:
    """Return that an ending node waits for the nodes that were bought for its pods."""
    message = "its pods stay until the nodes bought for them are ready"
    return Waiting(AWAITING_REPLACEMENT, message, f"NodeClaim/{claim.name}", claim.phase_since)


def awaits_replacement(
    claim: NodeClaim, node: Node | None, pods: Iterable[Pod], claims: Collection[NodeClaim], now: datetime
) -> bool:
    """Return whether the pods of an ending node must stay on it for now."""
    if claim.phase is not Phase.TERMINATING or claim.cause not in CHOSEN or now >= _longest(claim):
        return False
    if node is None or not node.is_ready:
        return False
    moving = {pod.key for pod in pods if must_go(pod.shape) and not pod.shape.is_daemon and not pod.deleting}
    if not moving:
        return False
    if any(c.phase in _COMING and not moving.isdisjoint(c.nominated) for c in claims):
        return True
    return now < _first_look(claim) and not _is_replaced(claim, moving, claims)


def patient_until(claim: NodeClaim) -> tuple[datetime, ...]:
    """Return the moments at which the wait of a claim's pods for their replacement may end."""
    return (_first_look(claim), _longest(claim)) if claim.cause in CHOSEN else ()


def head_start(claim: NodeClaim) -> timedelta:
    """Return how much sooner the pods of a node are deleted than their grace until its deadline requires."""
    return HEAD_START if claim.cause in WARNED else timedelta(0)


def _first_look(claim: NodeClaim) -> datetime:
    wait = FIRST_LOOK_WARNED if claim.cause in WARNED else FIRST_LOOK
    return (claim.terminating_at or claim.phase_since) + wait


def _longest(claim: NodeClaim) -> datetime:
    return (claim.terminating_at or claim.phase_since) + LONGEST_WAIT


def _is_replaced(claim: NodeClaim, moving: Collection[str], claims: Iterable[NodeClaim]) -> bool:
    """Return whether the replacements of the node are ready: those of its move, or a node bought since it began to end.

    Older nodes do not count: a pod may run on a different node than the one that was once bought for it.
    """
    begun = claim.terminating_at or claim.phase_since
    ready = [c for c in claims if c.phase is Phase.INITIALIZED]
    if claim.replaced_by:
        return set(claim.replaced_by) <= {c.name for c in ready}
    return any(c.created_at >= begun and not set(c.nominated).isdisjoint(moving) for c in ready)
