"""Pod events: when pods last came to a node or left it, which a NodeClaim shows as `status.lastPodEventTime`.

The snapshot knows it from the pods themselves, but for those that have gone: the forwarder forgets them with itself.
What is written into the NodeClaim outlives it. One write a burst is enough for that, when the node has become quiet:
while pods come and go, nobody counts from their last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Any

from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.nodes import Node
from nodesmith.model.snapshot import Snapshot
from nodesmith.model.times import parse_time

QUIET = timedelta(seconds=10)
"""Without a pod event for so long, a node's last one is written; as seldom as Karpenter writes it at most."""
MOST_AT_ONCE = 50
"""In one run; the others are quiet the longer in the next."""


def last_pod_event(node: Node, shown: Mapping[str, Any] | None) -> datetime | None:
    """Give when a pod last came to a node or left it, by the snapshot and by its NodeClaim object (None: no object)."""
    known = [at for at in (node.last_pod_event_at, _written(shown or {})) if at is not None]
    return max(known, default=None)


def to_stamp(claims: Iterable[NodeClaim], snapshot: Snapshot, now: datetime) -> dict[str, datetime]:
    """Give by NodeClaim what its object is to show, those first whose nodes have been quiet the longest."""
    shown = snapshot.shown_nodeclaims()
    due: list[tuple[datetime, str]] = []
    for claim in claims:
        node, manifest = snapshot.node_of(claim), shown.get(claim.name)
        at = node.last_pod_event_at if node is not None else None
        if at is None or manifest is None or claim.is_ending or now - at < QUIET:
            continue
        if _is_news(at, manifest):
            due.append((at, claim.name))
    return {name: at for at, name in nsmallest(MOST_AT_ONCE, due)}


def _is_news(at: datetime, manifest: Mapping[str, Any]) -> bool:
    written = _written(manifest)
    return written is None or at > written


def _written(manifest: Mapping[str, Any]) -> datetime | None:
    """Read what a NodeClaim shows; nonsense is nothing."""
    text = (manifest.get("status") or {}).get("lastPodEventTime")
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None
