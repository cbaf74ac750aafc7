"""Condition `Consolidatable` of NodeClaims, and the time of the last pod event (`status.lastPodEventTime`) behind it.

A node is consolidatable if no pod has come or gone for as long as the NodePool's consolidateAfter. The rule is
Karpenter's and ignores the consolidation policy: it also holds for nodes that other rules keep. The condition is
written when it changes, and removed when it no longer holds. Nodes of static NodePools are never consolidated.

The snapshot knows the time from the pods themselves, except for pods that have gone: the forwarder forgets those when
it restarts. The time in the NodeClaim survives a restart and comes back with the next snapshot. One write per burst is
enough, after the node has become quiet: while pods come and go, nothing depends on the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest

from nodesmith.decisions.disruption.candidates import quiet_since
from nodesmith.decisions.due import first_after
from nodesmith.model.karpenter.nodeclaimobjects import (
    CONSOLIDATABLE,
    ObjectCondition,
    shown_pod_event,
    shown_status,
)
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.snapshot import Snapshot

MOST_AT_ONCE = 50
"""The most NodeClaims written in one run; the oldest changes among the others come first in the next."""
QUIET = timedelta(seconds=10)
"""A node's last pod event is written after this time without another one; Karpenter writes no more often either."""
MOST_STAMPS_AT_ONCE = 50
"""The most NodeClaims in one run; the others follow in the next."""


@dataclass(frozen=True, slots=True)
class Consolidatable:
    """The conditions to write by NodeClaim, oldest first, and the next moment at which one changes.

    `left` is the number of due conditions that must wait for the next pass.
    """

    due: Mapping[str, ObjectCondition]
    next_at: datetime | None
    left: int = 0


def consolidatable(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    now: datetime,
    most: int = MOST_AT_ONCE,
) -> Consolidatable:
    """Compare the conditions that NodeClaims show with what holds now; return at most `most` conditions to write.

    NodeClaims without a valid NodePool stay as they are.
    """
    due: list[tuple[datetime, str, ObjectCondition]] = []
    coming: list[datetime] = []
    for claim, at, shown in _states(claims, snapshot, pools):
        if at is not None and at > now:
            coming.append(at)
        holds = at is not None and at <= now
        since = at if at is not None and holds else now
        if shown != ("True" if holds else ""):
            due.append(
                (since, claim.name, ObjectCondition(CONSOLIDATABLE, str(holds), since, CONSOLIDATABLE, ""))
            )
    chosen = nsmallest(most, due, key=lambda one: one[:2])
    conditions = {name: condition for _, name, condition in chosen}
    return Consolidatable(conditions, min(coming, default=None), len(due) - len(chosen))


def next_change(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> datetime | None:
    """Return the first moment after `now` at which a node becomes consolidatable, None if none ever does."""
    return first_after(now, (at for _, at, _ in _states(claims, snapshot, pools)))


def _states(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool]
) -> Iterator[tuple[NodeClaim, datetime | None, str]]:
    """Yield initialized claims, each with when it is consolidatable (None for never) and the status that it shows."""
    shown = snapshot.shown_nodeclaims()
    for claim in claims:
        node, pool, manifest = snapshot.node_of(claim), pools.get(claim.nodepool), shown.get(claim.name)
        if claim.phase is not Phase.INITIALIZED or node is None or pool is None or manifest is None:
            continue
        after = None if pool.is_static else pool.disruption.consolidate_after_seconds
        at = None if after is None else quiet_since(claim, node) + timedelta(seconds=after)
        yield claim, at, shown_status(manifest, CONSOLIDATABLE)


def to_stamp(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> dict[str, datetime]:
    """Return the times that must be written, by NodeClaim; nodes that have been quiet the longest come first."""
    shown = snapshot.shown_nodeclaims()
    due: list[tuple[datetime, str]] = []
    for claim in claims:
        node, manifest = snapshot.node_of(claim), shown.get(claim.name)
        at = node.last_pod_event_at if node is not None else None
        if at is None or manifest is None or claim.is_ending or now - at < QUIET:
            continue
        written = shown_pod_event(manifest)
        if written is None or at > written:
            due.append((at, claim.name))
    return {name: at for at, name in nsmallest(MOST_STAMPS_AT_ONCE, due)}
