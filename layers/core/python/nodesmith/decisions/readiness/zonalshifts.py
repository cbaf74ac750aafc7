"""Zonal shifts on NodePools: which of them can reach a zone, and what their statuses and Events say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import ZONE, ZONE_ID
from nodesmith.model.ec2.zonalshifts import SHIFTED, ZonalShift
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.events import ObjectEvent, shortened
from nodesmith.model.nodeclasses.status import NodeClassStatus, StatusCondition


def reaches(pool: NodePool, status: NodeClassStatus | None, shift: ZonalShift) -> bool:
    """Return whether nodes of the NodePool could be launched in the zone: it allows it, and there is a subnet."""
    if status is None or not any(subnet.zone == shift.zone for subnet in status.subnets):
        return False
    wanted = ((ZONE, shift.zone), (ZONE_ID, shift.zone_id))
    return all(
        pool.requirements[key].allows(value) for key, value in wanted if value and key in pool.requirements
    )


def announcements(
    shifts: Sequence[ZonalShift], pools: Iterable[NodePool], statuses: Mapping[str, NodeClassStatus]
) -> list[ObjectEvent]:
    """Return the Events, with Karpenter's reasons, about the changes that have not been announced."""
    new = [shift for shift in shifts if not shift.announced]
    return [
        _event(pool, shift)
        for pool in sorted(pools, key=lambda pool: pool.name)
        for shift in new
        if pool.uid and reaches(pool, statuses.get(pool.nodeclass.name), shift)
    ]


def _event(pool: NodePool, shift: ZonalShift) -> ObjectEvent:
    if shift.ended:
        where = f"zone {shift.zone} ({shift.zone_id})"
        message = f"the {shift.kind} away from {where} has ended: nodes may be launched there"
        return ObjectEvent("NodePool", pool.name, "ZonalShiftCleared", message)
    message = f"no node is launched or voluntarily disrupted: {shift}"
    return ObjectEvent("NodePool", pool.name, "ZonalShiftActive", message, warning=True)


def shift_condition(
    pool: NodePool,
    status: NodeClassStatus | None,
    shifts: Iterable[ZonalShift],
    manifest: Mapping[str, Any],
    now: datetime,
) -> list[StatusCondition]:
    """Return whether a NodePool can reach a zone that is shifted away from; nothing if it never could.

    This does not affect Ready.
    """
    reached = [shift for shift in shifts if shift.holds(now) and reaches(pool, status, shift)]
    if reached:
        message = shortened("; ".join(map(str, reached)))
        return [StatusCondition(SHIFTED, "True", "ZonalShiftActive", message)]
    shown = (manifest.get("status") or {}).get("conditions") or ()
    was_shown = any(condition.get("type") == SHIFTED for condition in shown)
    return [StatusCondition(SHIFTED, "False", "ZonalShiftCleared")] if was_shown else []
