"""NodeClaims are told when their nodes become consolidatable, and when they no longer are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.decisions.consolidatable import MOST_AT_ONCE, consolidatable
from nodesmith.errors import Failures
from nodesmith.model.karpenter.nodeclaimconditions import CONSOLIDATABLE, condition_item
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cluster

SOONEST, TICK = timedelta(seconds=15), timedelta(minutes=1)
"""When to look again for the next one: not for each node that becomes quiet, and not for what the next tick finds"""
MOST_A_MINUTE = 100
"""NodeClaims written by one process, however often it looks"""


@dataclass(slots=True)
class Pace:
    """When this process has written conditions, in the last minute; kept from run to run."""

    written: list[datetime] = field(default_factory=list)

    def allowed(self, now: datetime) -> int:
        """Return how many may be written now."""
        self.written = [moment for moment in self.written if now - moment < TICK]
        return min(MOST_AT_ONCE, MOST_A_MINUTE - len(self.written))


def show_consolidatable(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    cluster: Cluster,
    now: datetime,
    pace: Pace,
    done: Counter[str],
    failures: Failures,
) -> timedelta | None:
    """Write the conditions that have changed, as many as the pace allows. Return when to look again, None for the tick.

    What fails is added to `failures`, and written in the next run.
    """
    found = consolidatable(claims, snapshot, pools, now, pace.allowed(now))
    for name, condition in found.due.items():
        pace.written.append(now)
        with failures.of(f"NodeClaim {name}"):
            cluster.merge_status("NodeClaim", name, {"conditions": [condition_item(condition)]})
            done[CONSOLIDATABLE] += 1
    if found.left and pace.allowed(now):
        return SOONEST
    if found.next_at is None or found.next_at - now >= TICK:
        return None
    return max(SOONEST, found.next_at - now)
