"""Pod events: when pods last came to a node or left it, which a NodeClaim shows as `status.lastPodEventTime`.

The snapshot knows the time from the pods themselves, except for pods that have gone: the forwarder forgets those when
it restarts. The time in the NodeClaim survives a restart and comes back with the next snapshot. One write per burst is
enough, after the node has become quiet: while pods come and go, nothing depends on the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import nsmallest

from nodesmith.model.karpenter.nodeclaimobjects import shown_pod_event
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.snapshot import Snapshot

QUIET = timedelta(seconds=10)
"""A node's last pod event is written after this time without another one; Karpenter writes no more often either."""
MOST_AT_ONCE = 50
"""The most NodeClaims in one run; the others follow in the next."""


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
    return {name: at for at, name in nsmallest(MOST_AT_ONCE, due)}
