"""Pod events: when pods last came to a node or left it, which a NodeClaim shows as `status.lastPodEventTime`.

The snapshot knows it from the pods themselves, but for those that have gone: the forwarder forgets them with itself.
What is written into the NodeClaim outlives it, and is read from there with the next snapshot. One write a burst is
enough for that, when the node has become quiet: while pods come and go, nobody counts from their last.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from heapq import nsmallest

from nodesmith.model.karpenter.nodeclaimobjects import shown_pod_event
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.snapshot import Snapshot

QUIET = timedelta(seconds=10)
"""Without a pod event for so long, a node's last one is written; as seldom as Karpenter writes it at most."""
MOST_AT_ONCE = 50
"""In one run; the others are quiet the longer in the next."""


def to_stamp(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> dict[str, datetime]:
    """Return by NodeClaim what its object is to show, those first whose nodes have been quiet the longest."""
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
