"""Condition `Consolidatable` of NodeClaims: no pod has come or gone for as long as the NodePool's consolidateAfter.

The rule is Karpenter's and ignores the consolidation policy: it also holds for nodes that other rules keep. The
condition is written when it changes, and removed when it no longer holds. Nodes of static NodePools are never
consolidated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest

from nodesmith.decisions.disruption.candidates import quiet_since
from nodesmith.decisions.due import first_after
from nodesmith.model.karpenter.nodeclaimobjects import CONSOLIDATABLE, ObjectCondition, shown_status
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.snapshot import Snapshot

MOST_AT_ONCE = 50
"""The most NodeClaims written in one run; the oldest changes among the others come first in the next."""


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
