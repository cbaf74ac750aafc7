"""EC2NodeClasses that were deleted but still have Karpenter's finalizer.

Karpenter removes the finalizer within seconds after no NodeClaim refers to the EC2NodeClass any more. If Karpenter was
uninstalled, the finalizer stays and the deletion waits forever.
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
"""How long after the deletion the finalizer is left to Karpenter, which may run without being detected."""


def held_nodeclasses(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> list[str]:
    """Return the names of the deleted EC2NodeClasses that only Karpenter's finalizer keeps.

    One that a NodeClaim refers to is in use, whether nodesmith or Karpenter created the NodeClaim.
    """
    return sorted(name for name, at in _held(snapshot, claims) if at <= now)


def next_hold(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """Return the first moment after `now` from which another EC2NodeClass counts as held, None if there is none."""
    return first_after(now, (at for _, at in _held(snapshot, claims)))


def _held(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Iterator[tuple[str, datetime]]:
    """Yield the deleted EC2NodeClasses that only the finalizer keeps, each with the end of `KARPENTERS_TURN`."""
    used = {claim.nodeclass.name for claim in claims} | set(map(nodeclass_name, snapshot.nodeclaims))
    for manifest in snapshot.nodeclasses:
        metadata = manifest["metadata"]
        deleted = metadata.get("deletionTimestamp")
        is_held = deleted and NODECLASS_FINALIZER in (metadata.get("finalizers") or ())
        if is_held and metadata["name"] not in used:
            yield str(metadata["name"]), parse_time(deleted) + KARPENTERS_TURN
