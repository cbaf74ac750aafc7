"""NodeClaims are told when their nodes become consolidatable, and when they no longer are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from nodesmith.decisions.consolidatable import consolidatable
from nodesmith.errors import Failures
from nodesmith.model.nodeclaimobjects import CONSOLIDATABLE, condition_item
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.nodepools import NodePool
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cluster

SOONEST, TICK = timedelta(seconds=15), timedelta(minutes=1)
"""When to look again for the next one: not for each node that becomes quiet, and not for what the next tick finds"""


def show_consolidatable(
    claims: Iterable[NodeClaim],
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    cluster: Cluster,
    now: datetime,
    done: Counter[str],
    failures: Failures,
) -> timedelta | None:
    """Write the conditions that have changed. Return when to look again; None where the next tick will do.

    What fails is added to `failures`, and written in the next run.
    """
    found = consolidatable(claims, snapshot, pools, now)
    for name, condition in found.due.items():
        with failures.of(f"NodeClaim {name}"):
            cluster.merge_status("NodeClaim", name, {"conditions": [condition_item(condition)]})
            done[CONSOLIDATABLE] += 1
    if found.next_at is None or found.next_at - now >= TICK:
        return None
    return max(SOONEST, found.next_at - now)
