"""EC2NodeClasses that Karpenter has left its finalizer on, and that somebody has deleted since.

Karpenter lifts the finalizer within seconds once no NodeClaim names the EC2NodeClass. Where Karpenter has been removed
nobody does, and the deletion waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from nodesmith.decisions.due import first_after
from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.ownership import nodeclass_name
from nodesmith.model.snapshot import Snapshot

KARPENTERS_TURN = timedelta(minutes=5)
"""For so long after the deletion the finalizer is left to Karpenter, which may run unseen."""


def held_nodeclasses(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> list[str]:
    """Return the names of the deleted EC2NodeClasses that nothing but Karpenter's finalizer keeps.

    One that a NodeClaim names is in use, whether nodesmith or Karpenter has made the NodeClaim.
    """
    return sorted(name for name, at in _held(snapshot, claims) if at <= now)


def next_hold(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """Return the first moment after `now` from which on another EC2NodeClass counts as held; None for none."""
    return first_after(now, (at for _, at in _held(snapshot, claims)))


def _held(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Iterator[tuple[str, datetime]]:
    """Yield the deleted EC2NodeClasses that nothing else keeps, each with when Karpenter's turn is over."""
    used = {claim.nodeclass.name for claim in claims} | set(map(nodeclass_name, snapshot.nodeclaims))
    for manifest in snapshot.nodeclasses:
        metadata = manifest["metadata"]
        deleted = metadata.get("deletionTimestamp")
        is_held = deleted and NODECLASS_FINALIZER in (metadata.get("finalizers") or ())
        if is_held and metadata["name"] not in used:
            yield str(metadata["name"]), parse_time(deleted) + KARPENTERS_TURN
