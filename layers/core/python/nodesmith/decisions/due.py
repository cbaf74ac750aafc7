"""When a concern must look again even if nothing changes.

Dispatch wakes the concerns of a cluster every few minutes until neither its snapshot nor its ledger has changed for ten
minutes, and from then on each concern only when it is due. Concerns therefore need not foresee what happens within
minutes of a change. A concern must not report a later moment than the first at which it would do something; an earlier
one only costs a run.

EC2NodeClasses are due to be resolved again, or to be released from Karpenter's finalizer. Karpenter removes its
finalizer within seconds after no NodeClaim refers to a deleted EC2NodeClass any more. If Karpenter was uninstalled, the
finalizer stays and the deletion waits forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from nodesmith.model.apimachinery.labels import NODECLASS_FINALIZER
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.ownership import nodeclass_name
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import NodeClassStatus
from nodesmith.model.snapshot import Snapshot


def first_after(now: datetime, moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments that is after `now`; None, which means never, if there is none."""
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def first(moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments; None, which means never, if there is none."""
    return min((moment for moment in moments if moment is not None), default=None)


RESOLVE_AGAIN = timedelta(minutes=5)
RESOLVE_AGAIN_SOON = timedelta(minutes=1)
"""The interval if something is missing, or for what others may use, too: capacity reservations, placement groups."""


def to_resolve(nodeclasses: Iterable[EC2NodeClass], ledger: Ledger, now: datetime) -> list[EC2NodeClass]:
    """Return the EC2NodeClasses whose resolution is missing, based on other content, or old."""
    due: list[EC2NodeClass] = []
    for nodeclass in sorted(nodeclasses, key=lambda n: n.name):
        known = ledger.nodeclasses.get(nodeclass.name)
        if known is None or known.content != nodeclass.content:
            due.append(nodeclass)
            continue
        if now >= _resolve_again_at(nodeclass, known):
            due.append(nodeclass)
    return due


def next_resolution(
    nodeclasses: Iterable[EC2NodeClass], statuses: Mapping[str, NodeClassStatus]
) -> datetime | None:
    """Return when the first of the EC2NodeClasses must be resolved again, None if none has a status."""
    known = ((nodeclass, statuses.get(nodeclass.name)) for nodeclass in nodeclasses)
    return first(_resolve_again_at(nodeclass, status) for nodeclass, status in known if status is not None)


def _resolve_again_at(nodeclass: EC2NodeClass, known: NodeClassStatus) -> datetime:
    counted = known.placement_group is not None or nodeclass.capacity_reservation_selector_terms
    changes = not known.is_ready or bool(counted)
    return known.resolved_at + (RESOLVE_AGAIN_SOON if changes else RESOLVE_AGAIN)


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
