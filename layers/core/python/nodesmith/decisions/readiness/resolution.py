"""Resolution: which EC2NodeClasses must be looked up in AWS again, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from nodesmith.decisions.due import first
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import NodeClassStatus

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
