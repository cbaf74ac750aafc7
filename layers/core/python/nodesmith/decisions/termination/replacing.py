"""Replacement first: a node that still serves keeps its pods until they have somewhere to go.

Provisioning buys for the pods of a node as soon as it is to end. Where we chose that end, nobody is in a hurry: pods
are evicted once what was bought for them is ready, or nothing was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from nodesmith.decisions.termination.draining import must_go
from nodesmith.decisions.termination.waiting import AWAITING_REPLACEMENT, Waiting
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.moves import Reason

EXPIRED = "Expired"
UNHEALTHY = "Unhealthy"
WARNED = frozenset(fate for fate in Fate if not fate.is_over)
"""Causes of ends that EC2 announces; what is to replace the node is bought in the run that reads it."""
CHOSEN = frozenset({EXPIRED, UNHEALTHY, *Reason}) | WARNED
"""Causes of ends that we chose, and may put off for a while, or that give us some time."""
FIRST_LOOK = timedelta(seconds=30)
"""By then provisioning has decided whether the pods need a node."""
FIRST_LOOK_WARNED = timedelta(seconds=10)
LONGEST_WAIT = timedelta(minutes=10)
"""How long a replacement is waited for: Karpenter's least."""
HEAD_START = timedelta(seconds=12)
"""So much sooner than its grace demands is a pod deleted whose instance EC2 takes, where its budgets have kept it: a
look may come as late as another one takes, and EC2 waits for nobody."""
_COMING = frozenset({Phase.PENDING, Phase.LAUNCHED, Phase.REGISTERED, Phase.GIVEN_UP})
"""Not ready yet; what was bought for the pods of one that is given up is bought again in a moment."""


def replacement(claim: NodeClaim) -> Waiting:
    """Say that a node that ends waits for what was bought for its pods."""
    message = "its pods stay until what was bought for them is ready"
    return Waiting(AWAITING_REPLACEMENT, message, f"NodeClaim/{claim.name}", claim.phase_since)


def awaits_replacement(
    claim: NodeClaim, node: Node | None, pods: Iterable[Pod], claims: Collection[NodeClaim], now: datetime
) -> bool:
    """Return whether the pods of a node that ends are to stay on it for now."""
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
    """Return the moments at which the pods of a chosen end may no longer have to stay."""
    return (_first_look(claim), _longest(claim)) if claim.cause in CHOSEN else ()


def head_start(claim: NodeClaim) -> timedelta:
    """Return how much sooner the pods of a node are deleted than their grace until its deadline demands."""
    return HEAD_START if claim.cause in WARNED else timedelta(0)


def _first_look(claim: NodeClaim) -> datetime:
    wait = FIRST_LOOK_WARNED if claim.cause in WARNED else FIRST_LOOK
    return (claim.terminating_at or claim.phase_since) + wait


def _longest(claim: NodeClaim) -> datetime:
    return (claim.terminating_at or claim.phase_since) + LONGEST_WAIT


def _is_replaced(claim: NodeClaim, moving: Collection[str], claims: Iterable[NodeClaim]) -> bool:
    """Return whether what was bought for pods of the node is ready, before its end began or since.

    A pod may run on another node than the one that was bought for it once: what is older than the end says nothing.
    """
    begun = claim.terminating_at or claim.phase_since
    ready = [c for c in claims if c.phase is Phase.INITIALIZED]
    if claim.replaced_by:
        return set(claim.replaced_by) <= {c.name for c in ready}
    return any(c.created_at >= begun and not set(c.nominated).isdisjoint(moving) for c in ready)
