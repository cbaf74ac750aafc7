"""Condition `Consolidatable` of NodeClaims: no pod has come or gone for as long as the NodePool's consolidateAfter.

The rule is Karpenter's, and knows no policy: it also holds for nodes that other rules keep. The condition is written
when it changes. Where Karpenter takes it off again, it becomes False.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest

from nodesmith.decisions.disruption.candidates import quiet_since
from nodesmith.model.nodeclaimobjects import ObjectCondition
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodepools import NodePool
from nodesmith.model.snapshot import Snapshot

CONSOLIDATABLE = "Consolidatable"
MOST_AT_ONCE = 50
"""NodeClaims written in one run; of the others the oldest changes come first in the next"""


@dataclass(frozen=True, slots=True)
class Consolidatable:
    """What one pass finds: conditions to write by NodeClaim, oldest first, and the next moment when one changes."""

    due: Mapping[str, ObjectCondition]
    next_at: datetime | None


def consolidatable(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> Consolidatable:
    """Compare what NodeClaims show with what holds now. Those without a readable NodePool stay as they are."""
    due: list[tuple[datetime, str, ObjectCondition]] = []
    coming: list[datetime] = []
    for claim, at, is_shown in _states(claims, snapshot, pools):
        if at is not None and at > now:
            coming.append(at)
        holds = at is not None and at <= now
        if holds and not is_shown:
            due.append(
                (
                    at or now,
                    claim.name,
                    ObjectCondition(CONSOLIDATABLE, "True", at or now, CONSOLIDATABLE, ""),
                )
            )
        elif is_shown and not holds:
            due.append((now, claim.name, ObjectCondition(CONSOLIDATABLE, "False", now, *_why_not(at))))
    chosen = nsmallest(MOST_AT_ONCE, due, key=lambda one: one[:2])
    return Consolidatable({name: condition for _, name, condition in chosen}, min(coming, default=None))


def _states(
    claims: Iterable[NodeClaim], snapshot: Snapshot, pools: Mapping[str, NodePool]
) -> Iterator[tuple[NodeClaim, datetime | None, bool]]:
    """Yield initialized claims, each with when it is consolidatable (None for never) and whether its object says so."""
    shown = snapshot.shown_nodeclaims()
    for claim in claims:
        node, pool, manifest = snapshot.node_of(claim), pools.get(claim.nodepool), shown.get(claim.name)
        if claim.phase is not Phase.INITIALIZED or node is None or pool is None or manifest is None:
            continue
        after = pool.disruption.consolidate_after_seconds
        at = None if after is None else quiet_since(claim, node) + timedelta(seconds=after)
        yield claim, at, _is_shown(manifest)


def _is_shown(manifest: Mapping[str, object]) -> bool:
    status = manifest.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    return any(
        isinstance(each, Mapping) and (each.get("type"), each.get("status")) == (CONSOLIDATABLE, "True")
        for each in conditions or ()
    )


def _why_not(at: datetime | None) -> tuple[str, str]:
    if at is None:
        return "NotConsolidatable", "the NodePool has consolidateAfter: Never"
    return "NotConsolidatable", f"pods came or went: it is consolidatable from {at:%H:%M:%S} UTC on"
