"""Unused nodes that an abandoned move has bought."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nodesmith.decisions.budgets import remaining
from nodesmith.decisions.scheduling.existing import is_going, nominations
from nodesmith.decisions.termination.evictions import must_go
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.snapshot import Snapshot

ABANDONED = "MoveAbandoned"
"""The cause of such a termination."""


def empty(claims: Iterable[NodeClaim], snapshot: Snapshot) -> list[NodeClaim]:
    """Return those of these claims that no pod runs on or is nominated for."""
    used = {pod.node or pod.nominated_node for pod in snapshot.pods if _counts(pod)} - {""}

    def name(claim: NodeClaim) -> str:
        node = snapshot.node_of(claim)
        return node.name if node is not None else claim.node_name

    return [claim for claim in claims if name(claim) not in used]


def unneeded(
    claims: Iterable[NodeClaim], snapshot: Snapshot, ledger: Ledger, now: datetime, *, patient: bool
) -> list[NodeClaim]:
    """Return those of these claims that no pod without a node is waiting for, marked as terminating.

    If `patient` is True, none is returned while any pod waits for a node.
    """
    displaced = _displaced(snapshot, ledger)
    if displaced and patient:
        return []
    bought = nominations(ledger.claims, now)
    awaited = {bought[pod.key] for pod in displaced if pod.key in bought}
    why = "the move that it was bought for was abandoned"
    return [claim.terminating(ABANDONED, why, now) for claim in claims if claim.name not in awaited]


def within_budgets(
    claims: Iterable[NodeClaim], snapshot: Snapshot, ledger: Ledger, now: datetime
) -> list[NodeClaim]:
    """Return those of these claims that may end now.

    These are all claims that are not ready, and as many of the ready ones as budgets allow.
    """
    pools = parsed_nodepools(snapshot.nodepools)
    found: list[NodeClaim] = []
    for claim in claims:
        node, pool = snapshot.node_of(claim), pools.get(claim.nodepool)
        serves = claim.initialized_at is not None and node is not None and node.is_ready
        if serves and pool is not None:
            left = remaining(pool, Reason.EMPTY.budgeted, ledger, found, snapshot, now, budgets_only=True)
            if left == 0:
                continue
        found.append(claim)
    return found


def _displaced(snapshot: Snapshot, ledger: Ledger) -> list[Pod]:
    """Return the pods that have no node, or whose node is terminating."""
    ending = {claim.provider_id for claim in ledger.claims if claim.is_ending and claim.provider_id}
    going = {node.name for node in snapshot.nodes if is_going(node) or node.provider_id in ending}
    return [
        pod
        for pod in snapshot.pods
        if _counts(pod) and not pod.deleting and (pod.unschedulable or pod.node in going) and not pod.refusal
    ]


def _counts(pod: Pod) -> bool:
    return not pod.shape.is_daemon and must_go(pod.shape)
