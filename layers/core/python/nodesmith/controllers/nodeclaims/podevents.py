"""The `lastPodEventTime` of NodeClaims: when a pod last came to their node or left it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nodesmith.decisions.consolidatable import to_stamp
from nodesmith.errors import Failures
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cluster


def stamp(
    claims: Iterable[NodeClaim], snapshot: Snapshot, cluster: Cluster, now: datetime, failures: Failures
) -> int:
    """Write the times of pod events that are due; return the number of claims. Errors are added to `failures`."""
    stamped = 0
    for name, at in to_stamp(claims, snapshot, now).items():
        with failures.of(f"NodeClaim {name}"):
            cluster.merge_status("NodeClaim", name, {"lastPodEventTime": format_time(at)})
            stamped += 1
    return stamped
