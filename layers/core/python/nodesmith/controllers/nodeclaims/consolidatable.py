"""The `Consolidatable` condition of NodeClaims, written when it changes."""

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
"""Bounds of the wait for the next look: not a look for each node that becomes quiet, and none after the next tick."""
MOST_A_MINUTE = 100
"""The most NodeClaims that one process writes in a minute, however often it looks."""


@dataclass(slots=True)
class Pace:
    """The times at which this process has written conditions in the last minute; kept from run to run."""

    written: list[datetime] = field(default_factory=list)

    def allowed(self, now: datetime) -> int:
        """Return how many conditions may be written now."""
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
    """Write as many changed conditions as `pace` allows; return the wait until the next look, None for the next tick.

    Errors are added to `failures`; the next run writes those conditions.
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
